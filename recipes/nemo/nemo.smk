# NeMo 25.04: plumbing on CPU for everybody, pairs on one GPU, full recipes on a cluster (recipes/nemo/submit.py).
from recipes.images import image_named
from recipes.nemo.experiments import all_experiments, cluster_experiments
from recipes.nemo.place import image_of, site_of
from recipes.workflow import checkpoint_every, require_gpus, slurm_place


rule nemo_environment:
    input:
        script="envs/stack.sh",
        locks=["envs/nemo/requirements.lock", "envs/nemo/release.lock"],
    output:
        touch("build/envs/nemo.done"),
    log:
        "build/logs/nemo/environment.log",
    benchmark:
        "build/benchmarks/nemo/environment.jsonl"
    params:
        venv=subpath(output[0], strip_suffix=".done"),
    message:
        "NeMo's environment for CPU (2.2 GB) into {params.venv}; reused afterwards"
    shell:
        "sh {input.script:q} {params.venv:q} {input.locks:q} 2>&1 | tee {log:q}"


rule nemo_cpu:
    input:
        expand(
            "build/sessions/nemo/{experiment}.json",
            experiment=[
                one.name for one in all_experiments().values() if one.tier == "cpu"
            ],
        ),
    log:
        "build/logs/nemo/cpu.log",
    localrule: True
    message:
        "all five NeMo recipes have trained on CPU (plumbing: real code, tiny models, no speed)"


rule nemo_cpu_run:
    input:
        environment=lambda wildcards: (
            []
            if image_of(config["nemo"], wildcards.experiment)
            else "build/envs/nemo.done"
        ),
        experiments="recipes/nemo/experiments.yaml",
        code=[
            "recipes/nemo/recipe.py",
            "recipes/nemo/worker.py",
            "recipes/nemo/recorder.py",
            "recipes/nemo/cpu.py",
        ],
    output:
        "build/sessions/nemo/{experiment}.json",
    log:
        "build/logs/nemo/{experiment}.log",
    benchmark:
        "build/benchmarks/nemo/{experiment}.jsonl"
    wildcard_constraints:
        experiment=".+-cpu-.+",
    container:
        lambda wildcards: image_of(config["nemo"], wildcards.experiment)
    threads: lambda wildcards: all_experiments()[wildcards.experiment].layout.gpus
    params:
        image=lambda wildcards: image_named(
            image_of(config["nemo"], wildcards.experiment)
        ),
        python=lambda wildcards: (
            config["nemo"]["python"]
            if image_of(config["nemo"], wildcards.experiment)
            else "build/envs/nemo/bin/python"
        ),
        checkpoint=lambda wildcards: checkpoint_every(
            config, all_experiments()[wildcards.experiment].steps
        ),
        runs=config["runs"],
    message:
        "nemo: {wildcards.experiment}"
    shell:
        "FEWBITS_IMAGE={params.image:q} PYTHONPATH=. {params.python:q} -m recipes.nemo.launch {wildcards.experiment:q}"
        " --checkpoint-every {params.checkpoint} --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"


rule nemo_gpu:
    input:
        expand(
            "build/sessions/nemo/{experiment}.json",
            experiment=[
                one.name for one in all_experiments().values() if one.tier == "one_gpu"
            ],
        ),
    log:
        "build/logs/nemo/gpu.log",
    localrule: True
    message:
        "every one-GPU experiment of NeMo has run; `snakemake publish` versions their results"


rule nemo_smoke:
    input:
        expand(
            "build/sessions/nemo/llama3_8b-h200-{which}.json",
            which=[
                "bf16",
                "fp8_delayed",
                "fp8_current",
                "bf16-25.07",
                "fp8_block-25.07",
            ],
        ),
    log:
        "build/logs/nemo/smoke.log",
    localrule: True
    message:
        "one GPU trained NeMo's Llama 3 8B (8 of 32 layers) in BF16 and FP8; `fewbits compare` shows the pair"


rule nemo_host:
    input:
        require_gpus(config, "nemo_host", 2),
        lambda wildcards: [
            f"build/sessions/nemo/{one.name}.json"
            for one in all_experiments().values()
            if one.tier == "one_host" and one.layout.gpus <= config["gpus"]
        ],
    log:
        "build/logs/nemo/host.log",
    localrule: True
    message:
        "every experiment of NeMo on several GPUs of one host has run, as far as this host's GPUs go"


rule nemo_gpu_run:
    input:
        require_gpus(
            config,
            "nemo",
            lambda wildcards: all_experiments()[wildcards.experiment].layout.gpus,
        ),
        experiments="recipes/nemo/experiments.yaml",
    output:
        "build/sessions/nemo/{experiment}.json",
    log:
        "build/logs/nemo/{experiment}.log",
    benchmark:
        "build/benchmarks/nemo/{experiment}.jsonl"
    wildcard_constraints:
        experiment=r".+-h200(x\d+)?-.+",
    container:
        lambda wildcards: image_of(config["nemo"], wildcards.experiment)
    resources:
        gpu=lambda wildcards: all_experiments()[wildcards.experiment].layout.gpus,
    params:
        image=lambda wildcards: image_named(
            image_of(config["nemo"], wildcards.experiment)
        ),
        python=config["nemo"]["python"],
        site=lambda wildcards: site_of(config["nemo"], wildcards.experiment),
        profile=lambda wildcards: (
            all_experiments()[wildcards.experiment].steps - 1
            if config["nemo"]["profile"]
            else -1
        ),
        checkpoint=lambda wildcards: checkpoint_every(
            config, all_experiments()[wildcards.experiment].steps
        ),
        runs=config["runs"],
    message:
        "nemo: {wildcards.experiment}, about two minutes"
    shell:
        "FEWBITS_IMAGE={params.image:q} PYTHONPATH={params.site:q}:. {params.python:q} -m recipes.nemo.launch {wildcards.experiment:q}"
        " --profile-step {params.profile} --checkpoint-every {params.checkpoint} --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"


rule nemo_cluster:
    input:
        lambda wildcards: [
            f"build/sessions/nemo/{experiment}.json"
            for experiment in cluster_experiments(config["slurm"]["hardware"])
        ],
    log:
        "build/logs/nemo/cluster.log",
    localrule: True
    message:
        "every full recipe for the cluster's hardware has run; `snakemake publish` versions their results"


rule nemo_cluster_run:
    input:
        environment="build/envs/nemo.done",
    output:
        "build/sessions/nemo/{experiment}.json",
    log:
        "build/logs/nemo/{experiment}.log",
    benchmark:
        "build/benchmarks/nemo/{experiment}.jsonl"
    wildcard_constraints:
        experiment="[a-z0-9_]+-(h100|b200|gb200)-.+",
    params:
        python="build/envs/nemo/bin/python",
        place=lambda wildcards: slurm_place(config),
        checkpoint=lambda wildcards: checkpoint_every(
            config, all_experiments()[wildcards.experiment].steps
        ),
    message:
        "nemo: {wildcards.experiment} is queued, and waited for"
    shell:
        "PYTHONPATH=. {params.python:q} -m recipes.nemo.submit {wildcards.experiment:q} {params.place}"
        " --checkpoint-every {params.checkpoint} --wait --session-file {output:q} 2>&1 | tee {log:q}"
