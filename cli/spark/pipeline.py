"""`antipode pipeline`: list the Spark jobs of `spark_jobs/pipelines`, and run one here."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.spark.archive import Cores, spark_here

app = typer.Typer(
    help="Spark jobs over topics, which continue at the other site after a failover.\n\n"
    "Example: antipode pipeline run word-count --bootstrap-server 127.0.0.1:9092 --input-topic lines --output-topic words "
    "--checkpoint out/words --once",
    no_args_is_help=True,
)
AS_THEY_ARE = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command("list")
def list_pipelines(output: Output = OutputFormat.TEXT) -> None:
    """The jobs by name.

    Example: antipode pipeline list
    """
    from spark_jobs.pipelines.catalogue import PIPELINES

    found = [{"name": one.name, "summary": one.summary} for one in PIPELINES]
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        print_table("", ("pipeline", "what it does"), [(one["name"], one["summary"]) for one in found])


@app.command(context_settings=AS_THEY_ARE)
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the job, as `antipode pipeline list` has it.")],
    is_asking: Annotated[bool, typer.Option("--options", help="Print the options of the job, and end.")] = False,
    cores: Cores = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Run a job in a local Spark session. The options of the job follow its name; --options lists
    them.

    Example: antipode pipeline run topic-to-files --bootstrap-server 127.0.0.1:9092 --topic orders
    --to out/orders
    """
    from spark_jobs.pipelines.catalogue import pipeline

    try:
        job = pipeline(name).module
    except KeyError as error:
        raise usage_error(str(error.args[0])) from error
    parser = job.parser()
    parser.prog = f"antipode pipeline run {name}"
    if is_asking:
        console.print(parser.format_help(), highlight=False, markup=False, soft_wrap=True)
        return
    # Before Spark starts, which takes seconds: a wrong option is refused at once.
    given = parser.parse_args(context.args)
    with failures_as_messages(), spark_here(f"antipode pipeline {name}", cores) as spark:
        result = job.run(spark, given)
    if output is OutputFormat.JSON:
        print_json({"pipeline": name, "result": result})
    else:
        console.print(result, highlight=False, markup=False, soft_wrap=True)
