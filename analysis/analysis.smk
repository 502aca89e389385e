# Evidence: DVC rebuilds every exhibit whose inputs changed. Their files are DVC's; Snakemake owns only the stamp.
from pathlib import Path

from analysis.exhibits import EXHIBITS
from analysis.rebuild import discard_stale_stamp
from recipes.workflow import cpu_tier

discard_stale_stamp(Path("build/exhibits.done"), Path("dvc.lock"))


rule exhibits:
    input:
        pointers=sorted(str(path) for path in Path("results/raw").rglob("*.dvc")),
        published="results/published/published.csv",
        stages="dvc.yaml",
        code=sorted(
            str(path)
            for room in ("analysis", "recipes/catalog")
            for suffix in ("*.py", "*.yaml")
            for path in Path(room).rglob(suffix)
        )
        + ["recipes/runs.py", "recipes/power.py", "recipes/nemo/recommended.csv"],
    output:
        "build/exhibits.done",
    log:
        "build/logs/exhibits.log",
    benchmark:
        "build/benchmarks/exhibits.jsonl"
    localrule: True
    resources:
        dvc=1,
    params:
        stages=EXHIBITS,
    message:
        "rebuilding tables and figures from raw results"
    shell:
        "(python -m analysis.rebuild {params.stages} && python -m analysis.documents) > {output:q} 2> {log:q}"


rule rerun_agreement:
    input:
        "build/exhibits.done",
        [getattr(rules, f"{stack}_cpu").input for stack in cpu_tier(config)],
    output:
        "build/rerun_agreement.csv",
    log:
        "build/logs/rerun_agreement.log",
    benchmark:
        "build/benchmarks/rerun_agreement.jsonl"
    localrule: True
    params:
        runs=config["runs"],
    message:
        "what this machine ran against the published reference results: {output}"
    shell:
        "python -m analysis.agreement --runs {params.runs:q} --out {output:q} 2>&1 | tee {log:q}"
