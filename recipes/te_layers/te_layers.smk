# Transformer Engine layers and GEMMs: one job a model and kind, all precisions interleaved in one process.
from recipes.te_layers.experiments import KINDS, load_experiments
from recipes.workflow import require_gpus


rule te_layers:
    input:
        expand(
            "build/sessions/te_layers/{kind}-{model}.json",
            kind=KINDS,
            model=load_experiments().models,
        ),
    log:
        "build/logs/te_layers.log",
    localrule: True
    message:
        "all models and kinds of te_layers have run; `snakemake publish` versions their results"


rule smoke:
    input:
        "build/sessions/te_layers/smoke.json",
    log:
        "build/logs/smoke.log",
    localrule: True
    message:
        "one GPU ran Llama 3 8B layers in BF16 and FP8; their run folders are listed in {input}"


rule te_layers_session:
    input:
        require_gpus(config, "te_layers", 1),
        lock="envs/te_layers/requirements.lock",
        experiments="recipes/te_layers/experiments.yaml",
    output:
        "build/sessions/te_layers/{kind}-{model}.json",
    log:
        "build/logs/te_layers/{kind}-{model}.log",
    benchmark:
        "build/benchmarks/te_layers/{kind}-{model}.jsonl"
    resources:
        gpu=1,
    params:
        python=config["te_layers"]["python"],
        site=config["te_layers"]["site"],
        runs=config["runs"],
    message:
        "te_layers: {wildcards.kind} of {wildcards.model}, all precisions interleaved"
    shell:
        "PYTHONPATH={params.site:q}:. {params.python:q} -m recipes.te_layers.launch"
        " --kind {wildcards.kind} --model {wildcards.model}"
        " --runs {params.runs:q} --session-file {output:q} 2>&1 | tee {log:q}"


rule te_layers_smoke:
    input:
        require_gpus(config, "te_layers", 1),
        lock="envs/te_layers/requirements.lock",
    output:
        "build/sessions/te_layers/smoke.json",
    log:
        "build/logs/te_layers/smoke.log",
    benchmark:
        "build/benchmarks/te_layers/smoke.jsonl"
    resources:
        gpu=1,
    params:
        python=config["te_layers"]["python"],
        site=config["te_layers"]["site"],
        runs=config["runs"],
    message:
        "te_layers smoke: Llama 3 8B layers, one repeat of ten iterations a precision, about a minute"
    shell:
        "PYTHONPATH={params.site:q}:. {params.python:q} -m recipes.te_layers.launch"
        " --kind layers --model llama3_8b --repeats 1 --iterations 10"
        " --runs {params.runs:q}/smoke --session-file {output:q} 2>&1 | tee {log:q}"
