# Raw results: the one rule that writes results/raw. Asked for by name only: what runs here is published on request.

from recipes.workflow import sealed_runs


rule publish:
    input:
        kept=["build/kept.txt"] if "checkpoint" in config["keep"] else [],
    output:
        "build/published.txt",
    log:
        "build/logs/publish.log",
    benchmark:
        "build/benchmarks/publish.jsonl"
    localrule: True
    resources:
        dvc=1,
    params:
        runs=config["runs"],
        # sealed runs never change: new names are what is new. Not input files: Snakemake refuses those that a node whose
        # clock is ahead has written
        sealed=sealed_runs(config),
        max_mib=config["publish_max_mib"],
    message:
        "versioning sealed runs of {params.runs} under results/raw"
    shell:
        "python -m results.publish --runs {params.runs:q} --max-mib {params.max_mib} > {output:q} 2> {log:q}"


rule keep_checkpoints:
    output:
        verdicts="build/verdicts.json",
        kept="build/kept.txt",
    log:
        "build/logs/keep.log",
    benchmark:
        "build/benchmarks/keep.jsonl"
    localrule: True
    resources:
        dvc=1,
    params:
        runs=config["runs"],
        sealed=sealed_runs(config),
    message:
        "versioning checkpoints of VALID runs of {params.runs} under results/checkpoints"
    shell:
        # a run that is not VALID makes verify's exit code 1: what may be kept is in its answer
        "(fewbits verify {params.runs:q} --json > {output.verdicts:q} || [ $? -eq 1 ]) 2> {log:q}"
        " && (python -m results.keep --runs {params.runs:q} --verdicts {output.verdicts:q} > {output.kept:q}"
        " || [ $? -eq 1 ]) 2>> {log:q}"


# Not part of any target: fetches other people's logs. The committed numbers do not need it.
rule mlperf_logs:
    input:
        "results/published/mlperf_sources.yaml",
        "results/published/mlperf_runs.csv",
        "results/published/mlperf_evals.csv",
    output:
        "build/checked/mlperf.txt",
    log:
        "build/logs/mlperf_logs.log",
    benchmark:
        "build/benchmarks/mlperf_logs.jsonl"
    localrule: True
    params:
        logs="build/mlperf",
    message:
        "fetching the MLPerf logs and holding the committed numbers to them"
    shell:
        "python -m analysis.mlperf --logs {params.logs:q} --fetch --check > {output:q} 2> {log:q}"
