"""The work of ``walle release dry-run``: decisions of a table for a population."""

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from walle_deploy.cli.output import print_line, write_json
from walle_deploy.cli.release_api import given_releases
from walle_deploy.cli.release_file import load_whole_release
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable
from walle_deploy.policy.dry_run import Group, as_json, decisions, explained, grouped, why_of
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.policy.judging import choose
from walle_deploy.policy.loading import PolicyDefinition
from walle_deploy.policy.population import read_population
from walle_deploy.release.model import Release
from walle_deploy.release.planning import Moment, Plan
from walle_deploy.release.state import offer_at
from walle_deploy.service.operating import DRY_RUN_PATH
from walle_deploy.service.settings import ServiceDefinition
from walle_stream.errors import RefNotFoundError, SpecFileError
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.single import kind_of, load_single


class _Question(NamedTuple):
    table: ReleaseTable
    about: str = ""
    """Id of the release in the file; empty for none."""
    subject: str = ""
    """Description for people of the devices that the file would serve."""
    notes: tuple[str, ...] = ()


def run_dry_run(options: argparse.Namespace) -> int:
    """Print the versions that a population would get.

    Raises:
        SpecFileError: A file cannot be read: the release, policy, population, service, or a file
            that a policy names.
        RefNotFoundError: The population has no such device.
        WalleError: The service refuses, or no service or store is named.
    """
    question = _question(options)
    sources = Sources()
    if options.attributes is not None:
        sources = Sources(load_single(options.attributes, ServiceDefinition).spec.attributes)
        sources.refresh()
    profiles = read_population(options.population)
    # the index reads the files of ids that policies name
    ReleaseIndex(question.table, sources)
    if sources.problems:
        raise SpecFileError(
            f"the dry run cannot read files that it needs: {'; '.join(sources.problems)}"
        )
    if options.device is not None:
        _explain(options, question, profiles, sources)
    elif options.list:
        for answer in decisions(question.table, profiles, sources, question.about):
            if options.json:
                write_json(answer._asdict())
            else:
                version = "-" if answer.version is None else answer.version or "none"
                parts = (
                    answer.device,
                    answer.task or "-",
                    version,
                    answer.release or "-",
                    answer.why,
                )
                print_line("  ".join(parts))
    else:
        groups = grouped(decisions(question.table, profiles, sources, question.about))
        _summarise(options, question, len(profiles), groups)
    return 0


def _question(options: argparse.Namespace) -> _Question:
    file: Path | None = options.file
    if file is None:
        with given_releases(options) as releases:
            return _Question(releases.get(DRY_RUN_PATH, Plan, stage="full").table)
    kind = kind_of(file)
    if kind == "Policy":
        return _of_policy(options, file)
    if kind != "Release":
        document = read_documents(file, os.environ)[0]
        raise document.error(("kind",), "expected kind Release or Policy")
    release = load_whole_release(file)
    if options.salt:
        metadata = release.metadata.model_copy(update={"name": options.salt})
        release = release.model_copy(update={"metadata": metadata})
    moment = _moment(options, release)
    notes: tuple[str, ...] = ()
    if options.alone:
        table = ReleaseTable(0, (offer_at(release, *moment, 0),))
    else:
        definition = release.model_dump(mode="json", by_alias=True, exclude_none=True)
        with given_releases(options, also="or --alone to leave other releases out") as releases:
            query = {"definition": definition, **moment._asdict()}
            table, notes = releases.get(DRY_RUN_PATH, Plan, **query)
    name, spec = release.metadata.name, release.spec
    where = f"at {moment.percent:g} %" if moment.stage == "gray" else f"at stage {moment.stage}"
    subject = f"would get {spec.task}@{spec.version} by release {name} {where}"
    return _Question(table, name, subject, notes)


def _of_policy(options: argparse.Namespace, file: Path) -> _Question:
    if options.beta:
        raise SpecFileError(
            f"{file}: a Policy has no beta: give a Release, or --percent", str(file)
        )
    definition = load_single(file, PolicyDefinition)
    name = options.salt or definition.metadata.name
    release = ActiveRelease(name, "", "", "full", definition.spec.plain, salt=name)
    if options.percent is not None:
        release = replace(release, stage="gray", percent=options.percent)
    return _Question(ReleaseTable(0, (release,)), name, f"would be admitted by policy {name}")


def _moment(options: argparse.Namespace, release: Release) -> Moment:
    if options.beta:
        if release.spec.beta is None:
            raise SpecFileError(
                f"{options.file}: release {release.metadata.name!r} has no spec.beta: leave --beta "
                "out, or name its devices",
                str(options.file),
            )
        return Moment("beta")
    return Moment() if options.percent is None else Moment("gray", options.percent)


def _summarise(
    options: argparse.Namespace, question: _Question, devices: int, groups: list[Group]
) -> None:
    summary: dict[str, Any] = {"devices": devices}
    by_it = [group for group in groups if question.about and group.release == question.about]
    would, have = sum(group.devices for group in by_it), sum(group.have_it for group in by_it)
    if question.about:
        summary |= {"would_get": would, "has_it": have}
    if options.json:
        shown = [group._asdict() for group in groups]
        write_json({**summary, "notes": question.notes, "groups": shown})
        return
    for note in question.notes:
        print_line(f"note: {note}")
    if question.about:
        print_line(f"{would} of {devices} devices {question.subject}, {have} have it")
    else:
        tasks = len({group.task for group in groups})
        print_line(f"{devices} devices, {tasks} released tasks")
    for group in groups:
        examples = ", ".join(group.examples) + (
            ", ..." if group.devices > len(group.examples) else ""
        )
        what = _what(group.task, group.version, group.release)
        have_it = f", {group.have_it} have it" if group.have_it else ""
        print_line(f"{group.devices:>9}  {what}{have_it} ({group.why}): {examples}")


def _what(task: str, version: str | None, release: str) -> str:
    if not task:
        return "not admitted" if version is None else "admitted"
    if version is None:
        return f"{task}: keep what they have"
    by = f"by release {release}" if release else "the stable version"
    return f"{task}@{version} {by}" if version else f"{task}: no version any more, {by}"


def _explain(
    options: argparse.Namespace,
    question: _Question,
    profiles: list[DeviceProfile],
    sources: Sources,
) -> None:
    profile = next((profile for profile in profiles if profile.device == options.device), None)
    if profile is None:
        raise RefNotFoundError(f"{options.population} has no device {options.device!r}")
    choices = list(choose(question.table, Facts(profile, sources, id_hash(profile.device))))
    for choice in choices:
        why = why_of(choice, question.about)
        if options.json:
            fields = {"device": profile.device, "task": choice.task, "version": choice.version}
            verdicts = [{"release": name, **as_json(verdict)} for name, verdict in choice.verdicts]
            write_json({**fields, "release": choice.release_id, "why": why, "asked": verdicts})
            continue
        what = _what(choice.task, choice.version, choice.release_id)
        print_line(f"device {profile.device}: {what} ({why})")
        for name, verdict in choice.verdicts:
            truth = "yes" if verdict.truth is True else "no"
            print_line(f"  {'release ' + name if name else 'the stable version'}: {truth}")
            for line in explained(verdict, 2):
                print_line(line)
