"""Values that come from other places than the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.config_providers import looked_up
from runtime.configuration import ConfigurationError

CLASSES = {
    "config.providers": "file, dir, env",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def test_values_come_from_files_directories_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.properties").write_text("login=mirror\nword=it is secret\n", encoding="utf-8")
    (tmp_path / "servers").write_text("p1:9092", encoding="utf-8")
    monkeypatch.setenv("WHICH_TOPICS", "orders.*")
    file = f"{tmp_path}/secrets.properties"
    found = looked_up(
        {
            **CLASSES,
            "primary.sasl.jaas.config": f'Module required username="${{file:{file}:login}}" password="${{file:{file}:word}}";',
            "primary.bootstrap.servers": f"${{dir:{tmp_path}:servers}}",
            "topics": "${env:WHICH_TOPICS}",
            "groups": "${other:x}",
        }
    )
    assert found["primary.sasl.jaas.config"] == 'Module required username="mirror" password="it is secret";'
    assert found["primary.bootstrap.servers"] == "p1:9092"
    assert found["topics"] == "orders.*"
    assert found["groups"] == "${other:x}", "no provider has it: it is a value like any other, as in Kafka"


def test_files_directories_and_the_environment_need_no_provider_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.properties").write_text("word=it is secret\n", encoding="utf-8")
    monkeypatch.setenv("WHICH_TOPICS", "orders.*")
    given = {
        "topics": "${env:WHICH_TOPICS}",
        "password": f"${{file:{tmp_path}/secrets.properties:word}}",
        "whole": f"${{directory:{tmp_path}:secrets.properties}}",
        "group": "$(env:WHICH_TOPICS) ${WHICH_TOPICS}",
    }
    assert looked_up(given) == {
        "topics": "orders.*",
        "password": "it is secret",
        "whole": "word=it is secret\n",
        "group": "$(env:WHICH_TOPICS) ${WHICH_TOPICS}",
    }


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"config.providers": "vault"}, "config.providers.vault.class"),
        (
            {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"},
            "config.providers.vault.class",
        ),
        ({**CLASSES, "topics": "${file:/nowhere:topics}"}, "topics"),
        ({**CLASSES, "topics": "${env:NOT_SET_ANYWHERE}"}, "topics"),
    ],
)
def test_a_missing_provider_or_value_is_named_with_its_key(given: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        looked_up(given)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${file:DIR/none:key}", "DIR/none: the file cannot be read (No such file or directory)"),
        ("${file:DIR/secrets:other}", "DIR/secrets has no key other"),
        ("${file:DIR:key}", "DIR: the file cannot be read (Is a directory)"),
        ("${file:DIR/secrets}", "the path or the name is missing"),
        ("${directory:DIR:none}", "DIR/none: the file cannot be read (No such file or directory)"),
        ("${directory:DIR/secrets:key}", "DIR/secrets/key: the file cannot be read (Not a directory)"),
        ("${directory:DIR:binary}", "DIR/binary: the file is no text in UTF-8"),
        ("${env:NOT_SET_ANYWHERE}", "the environment has no variable NOT_SET_ANYWHERE"),
    ],
)
def test_the_error_names_the_place_and_the_form_and_repeats_nothing_secret(
    tmp_path: Path, reference: str, reason: str
) -> None:
    (tmp_path / "secrets").write_text("key=planted\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"planted \xff")
    value = reference.replace("DIR", str(tmp_path))
    with pytest.raises(ConfigurationError) as refused:
        looked_up({"sasl.jaas.config": f'password="{value}" other="planted"'})
    assert refused.value.value == value
    assert refused.value.accepted.startswith(f"{reason.replace('DIR', str(tmp_path))}; accepted: ${{")
    assert "planted" not in str(refused.value)
