# fewbits: the targets. Rules stand in the room that they belong to; settings in config/, places to run in profiles/.
from snakemake.utils import min_version, validate

from recipes.workflow import announce, name_holder, require_apptainer, withdraw

min_version("9.27")


configfile: "config/config.yaml"


validate(config, "config/config.schema.json")
name_holder()
require_apptainer(config, workflow.deployment_settings)


wildcard_constraints:
    kind="layers|gemms",
    model="[a-z0-9_]+",


include: "recipes/te_layers/te_layers.smk"
include: "recipes/nemo/nemo.smk"
include: "recipes/collectives/collectives.smk"
include: "recipes/maxtext/maxtext.smk"
include: "results/results.smk"
include: "analysis/analysis.smk"


onstart:
    announce()


onsuccess:
    withdraw()


onerror:
    withdraw()


rule reproduce_all:
    default_target: True
    input:
        "build/exhibits.done",
        "build/rerun_agreement.csv",
    log:
        "build/logs/reproduce_all.log",
    localrule: True
    message:
        "everything is rebuilt: tables and figures in results/exhibits/, verdicts in results/exhibits/claims.csv; what"
        " this machine ran itself against the published results: build/rerun_agreement.csv"
