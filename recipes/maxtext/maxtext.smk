# MaxText on CPU: the numerics of BF16, FP8, MXFP8 and NVFP4 on a tiny model; everything narrow is emulated.
from recipes.maxtext.experiments import all_experiments as maxtext_experiments
from recipes.workflow import MAXTEXT_PYTHON


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
        environment="build/envs/maxtext.done",
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
    params:
        python="build/envs/maxtext/bin/python",
        runs=config["runs"],
    message:
        "maxtext: {wildcards.experiment}, about a minute"
    shell:
        "PYTHONPATH=. {params.python:q} -m recipes.maxtext.launch {wildcards.experiment:q}"
        " --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"
