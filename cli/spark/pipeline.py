"""`antipode pipeline`: list the Spark jobs of `spark_jobs/pipelines`, run one here, and compare the
topics of a pipeline with its data contract.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.shared.brokers import check_brokers_answer
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.spark.local_sessions import Cores, lazy_session
from cli.spark.stream_progress import reported_batches
from runtime.process import ExitCode

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
    from spark_jobs.session import result_of

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
    with failures_as_messages(), lazy_session(f"antipode pipeline {name}", cores) as session:
        if brokers := parser.brokers_of(given):
            check_brokers_answer(brokers, parser.topics_of(given))
        spark = session()
        with reported_batches(spark):
            result = result_of(lambda: job.run(spark, given))
    if output is OutputFormat.JSON:
        print_json({"pipeline": name, "result": result})
    else:
        console.print(result, highlight=False, markup=False, soft_wrap=True)


@app.command()
def topics(
    contract: Annotated[
        Path | None, typer.Option(help="File of the data contract; by default that of the road pipeline.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_creating: Annotated[bool, typer.Option("--create", help="Create the topics that are not there.")] = False,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of each partition of created topics; by default the cluster's.")
    ] = -1,
    records: Annotated[
        int, typer.Option(help="The newest records of each partition that are checked; 0: none.", min=0)
    ] = 100,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare the topics of a pipeline, and their newest records, with the pipeline's data
    contract. A number of partitions out of its range is a warning.

    Exit code 1 if a topic or a record contradicts the contract, else 0.

    Example: antipode pipeline topics --create --bootstrap-server 127.0.0.1:9092
    """
    from cli.spark.contract_topics import checked_topics, create_missing
    from spark_jobs.pipelines.core.contracts import Severity
    from spark_jobs.pipelines.data_contracts import load_contract, own_contract

    with failures_as_messages():
        rules = own_contract("road") if contract is None else load_contract(contract)
        created = create_missing(rules, bootstrap_server, replication_factor=replication_factor) if is_creating else []
        found = checked_topics(rules, bootstrap_server, records_max=records)
    is_wrong = any(one.severity is Severity.ERROR for one in found.findings)
    if output is OutputFormat.JSON:
        print_json(
            {
                "contract": rules.name,
                "created": created,
                "topics": {name: topic.partitions for name, topic in found.topics.items()},
                "records": found.records,
                "findings": [{**one._asdict(), "severity": one.severity.value} for one in found.findings],
            }
        )
    else:
        rows = [
            (name, topic.partitions, found.records.get(name, "-"), "created" if name in created else "")
            for name, topic in found.topics.items()
        ]
        print_table(f"contract {rules.name}", ("topic", "partitions", "records checked", ""), rows)
        for one in found.findings:
            console.print(f"{one.severity.value}: {one.topic}: {one.text}", highlight=False, markup=False)
        if not is_wrong:
            console.print(f"the topics fit contract {rules.name}", highlight=False, markup=False)
    raise typer.Exit(ExitCode.FAILED if is_wrong else ExitCode.DONE)
