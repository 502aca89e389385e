# MaxText: numerics of all precisions on CPU for everybody, pairs on one GPU and one host, whole models on a cluster.
from recipes.images import container_of, image_named
from recipes.maxtext.experiments import all_experiments as maxtext_experiments
from recipes.maxtext.experiments import cluster_experiments as maxtext_cluster
from recipes.maxtext.experiments import refused as maxtext_refused
from recipes.workflow import (
    MAXTEXT_PYTHON,
    checkpoint_every,
    require_gpus,
    slurm_place,
)


rule maxtext_environment:
    input:
        script="envs/stack.sh",
        find="envs/python.sh",
        lock="envs/maxtext/requirements.lock",
    output:
        touch("build/envs/maxtext.done"),
    log:
        "build/logs/maxtext/environment.log",
    benchmark:
        "build/benchmarks/maxtext/environment.jsonl"
    params:
        venv=subpath(output[0], strip_suffix=".done"),
        version=MAXTEXT_PYTHON,
    message:
        "MaxText's environment for CPU (1.3 GB, Python {params.version}) into {params.venv}; reused afterwards"
    shell:
        '(python=$(sh {input.find:q} {params.version}) && PYTHON="$python" sh {input.script:q} {params.venv:q} {input.lock:q})'
        " 2>&1 | tee {log:q}"


rule maxtext_cpu:
    input:
        expand(
            "build/sessions/maxtext/{experiment}.json",
            experiment=[
                one.name
                for one in maxtext_experiments().values()
                if one.tier == "cpu" and not one.gpus_per_node
            ],
        ),
    log:
        "build/logs/maxtext/cpu.log",
    localrule: True
    message:
        "MaxText has trained in all precisions on CPU (narrow ones emulated; no speed)"


rule maxtext_cpu_run:
    input:
        environment=(
            [] if config["maxtext"]["container"] else "build/envs/maxtext.done"
        ),
        experiments="recipes/maxtext/experiments.yaml",
        code=[
            "recipes/maxtext/arguments.py",
            "recipes/maxtext/emulation.py",
            "recipes/maxtext/recorder.py",
            "recipes/maxtext/tokens.py",
            "recipes/maxtext/worker.py",
        ],
    output:
        "build/sessions/maxtext/{experiment}.json",
    log:
        "build/logs/maxtext/{experiment}.log",
    benchmark:
        "build/benchmarks/maxtext/{experiment}.jsonl"
    wildcard_constraints:
        experiment=".+-cpu-.+",
    container:
        container_of(config["maxtext"]["container"], "maxtext")
    params:
        image=image_named(container_of(config["maxtext"]["container"], "maxtext")),
        python=(
            config["maxtext"]["python"]
            if config["maxtext"]["container"]
            else "build/envs/maxtext/bin/python"
        ),
        checkpoint=lambda wildcards: checkpoint_every(
            config, maxtext_experiments()[wildcards.experiment].steps
        ),
        runs=config["runs"],
    message:
        "maxtext: {wildcards.experiment}, about a minute"
    shell:
        "FEWBITS_IMAGE={params.image:q} PYTHONPATH=. {params.python:q} -m recipes.maxtext.launch {wildcards.experiment:q}"
        " --checkpoint-every {params.checkpoint} --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"


rule maxtext_gpu:
    input:
        expand(
            "build/sessions/maxtext/{experiment}.json",
            experiment=[
                one.name
                for one in maxtext_experiments().values()
                if one.tier == "one_gpu" and not maxtext_refused(one)
            ],
        ),
    log:
        "build/logs/maxtext/gpu.log",
    localrule: True
    message:
        "every one-GPU experiment of MaxText has run; `snakemake publish` versions their results"


rule maxtext_host:
    input:
        require_gpus(config, "maxtext_host", 2),
        lambda wildcards: [
            f"build/sessions/maxtext/{one.name}.json"
            for one in maxtext_experiments().values()
            if one.tier == "one_host" and one.layout.gpus <= config["gpus"]
        ],
    log:
        "build/logs/maxtext/host.log",
    localrule: True
    message:
        "every experiment of MaxText on several GPUs of one host has run, as far as this host's GPUs go"


rule maxtext_gpu_run:
    input:
        require_gpus(
            config,
            "maxtext",
            lambda wildcards: maxtext_experiments()[wildcards.experiment].layout.gpus,
        ),
        experiments="recipes/maxtext/experiments.yaml",
    output:
        "build/sessions/maxtext/{experiment}.json",
    log:
        "build/logs/maxtext/{experiment}.log",
    benchmark:
        "build/benchmarks/maxtext/{experiment}.jsonl"
    wildcard_constraints:
        experiment=r".+-h200(x\d+)?-.+",
    container:
        container_of(config["maxtext"]["container"], "maxtext")
    resources:
        gpu=lambda wildcards: maxtext_experiments()[wildcards.experiment].layout.gpus,
    params:
        image=image_named(container_of(config["maxtext"]["container"], "maxtext")),
        python=config["maxtext"]["python"],
        site=config["maxtext"]["site"],
        runs=config["runs"],
    message:
        "maxtext: {wildcards.experiment}, about a minute and a half; emulated NVFP4 compiles for longer"
    shell:
        "FEWBITS_IMAGE={params.image:q} PYTHONPATH={params.site:q}:. {params.python:q} -m recipes.maxtext.launch {wildcards.experiment:q}"
        " --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"


rule maxtext_rehearse:
    input:
        environment="build/envs/maxtext.done",
        experiments="recipes/maxtext/experiments.yaml",
    output:
        "build/rehearsals/{experiment}.json",
    log:
        "build/logs/maxtext/rehearse-{experiment}.log",
    benchmark:
        "build/benchmarks/maxtext/rehearse-{experiment}.jsonl"
    params:
        python="build/envs/maxtext/bin/python",
    message:
        "maxtext: {wildcards.experiment} is compiled for as many virtual devices as it has GPUs, about a minute"
    shell:
        "(PYTHONPATH=. {params.python:q} -m recipes.maxtext.launch {wildcards.experiment:q} --rehearse > {output:q})"
        " 2>&1 | tee {log:q}"


rule maxtext_cluster:
    input:
        lambda wildcards: [
            f"build/sessions/maxtext/{experiment}.json"
            for experiment in maxtext_cluster(config["slurm"]["hardware"])
        ],
    log:
        "build/logs/maxtext/cluster.log",
    localrule: True
    message:
        "every whole model of MaxText for the cluster's hardware has run; `snakemake publish` versions their results"


rule maxtext_cluster_run:
    input:
        rehearsal="build/rehearsals/{experiment}.json",
    output:
        "build/sessions/maxtext/{experiment}.json",
    log:
        "build/logs/maxtext/{experiment}.log",
    benchmark:
        "build/benchmarks/maxtext/{experiment}.jsonl"
    wildcard_constraints:
        experiment="[a-z0-9_]+-(b200|gb200|gb300)-.+",
    params:
        place=lambda wildcards: slurm_place(config, "maxtext_image"),
        checkpoint=lambda wildcards: checkpoint_every(
            config, maxtext_experiments()[wildcards.experiment].steps
        ),
    message:
        "maxtext: {wildcards.experiment} is queued, and waited for"
    shell:
        "python -m recipes.maxtext.submit {wildcards.experiment:q} {params.place}"
        " --checkpoint-every {params.checkpoint} --wait --session-file {output:q} 2>&1 | tee {log:q}"
