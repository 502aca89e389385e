# Raw results: the one rule that writes results/raw. Asked for by name only: what runs here is published on request.

from pathlib import Path

from recipes.runs import MANIFEST, find_runs, is_complete


rule publish:
    input:
        [
            str(folder / MANIFEST)
            for folder in find_runs(Path(config["runs"]))
            if is_complete(folder)
        ],
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
        max_mib=config["publish_max_mib"],
    message:
        "versioning sealed runs of {params.runs} under results/raw"
    shell:
        "python -m results.publish --runs {params.runs:q} --max-mib {params.max_mib} > {output:q} 2> {log:q}"
