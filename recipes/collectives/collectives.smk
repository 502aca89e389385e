# What the GPUs of this host can send each other: for the projection, and to tell communication from arithmetic.
from recipes.collectives.experiments import all_experiments as collectives_experiments
from recipes.workflow import require_gpus


rule collectives:
    input:
        require_gpus(config, "collectives", 2),
        lambda wildcards: [
            f"build/sessions/collectives/{one.name}.json"
            for one in collectives_experiments().values()
            if one.gpus <= config["gpus"]
        ],
    log:
        "build/logs/collectives.log",
    localrule: True
    message:
        "collectives have run between 2 GPUs of this host and more, as far as they go"


rule collectives_run:
    input:
        require_gpus(
            config,
            "collectives",
            lambda wildcards: collectives_experiments()[wildcards.experiment].gpus,
        ),
        experiments="recipes/collectives/experiments.yaml",
    output:
        "build/sessions/collectives/{experiment}.json",
    log:
        "build/logs/collectives/{experiment}.log",
    benchmark:
        "build/benchmarks/collectives/{experiment}.jsonl"
    resources:
        gpu=lambda wildcards: collectives_experiments()[wildcards.experiment].gpus,
    params:
        python=config["nemo"]["python"],
        site=config["nemo"]["site"],
        runs=config["runs"],
    message:
        "collectives: {wildcards.experiment}, about a minute"
    shell:
        "PYTHONPATH={params.site:q}:. {params.python:q} -m recipes.collectives.launch {wildcards.experiment:q}"
        " --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"
