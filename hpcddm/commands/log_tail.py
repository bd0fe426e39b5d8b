"""Follows a unit's log over all its attempts, like tail -f."""

import codecs
import os
import time
from pathlib import Path
from typing import BinaryIO

import click

from hpcddm.errors.printing import echo, printable
from hpcddm.files import checked_reads
from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.attempt_records import AttemptRecord, read_record
from hpcddm.jobs.outcome import COMES_BACK
from hpcddm.runs.run_dir import RunDir

POLL_SECONDS = 0.5
VERDICT_SECONDS = 60
"""Seconds that the batch script may take to record what becomes of an attempt that has ended."""
FIRST_BYTES = 65536
"""Bytes at the end of an existing log that are shown first."""


def follow(run: RunDir, unit: str, rank: int, number: int) -> None:
    """Print the log of a rank from attempt `number` on, until the unit has ended for good, or Ctrl-C."""
    try:
        while True:
            record = _wait_for(run, unit, number)
            echo(f"--- attempt {record.number} of {unit}: {record.folder / f'rank{rank}.log'}")
            if _tail(run, unit, record, rank):
                return
            number = record.number + 1
    except KeyboardInterrupt:
        # The user stops following; this is not an error.
        return


def _wait_for(run: RunDir, unit: str, number: int) -> AttemptRecord:
    """Wait for the first attempt from `number` on and read its record."""
    has_said = False
    while True:
        if attempt := next((attempt for attempt in list_attempts(run.logs(unit)) if attempt[0] >= number), None):
            return read_record(*attempt)
        if not has_said:
            echo(f"--- waiting for attempt {number} of {unit} (Ctrl-C leaves)")
            has_said = True
        time.sleep(POLL_SECONDS)


def _tail(run: RunDir, unit: str, record: AttemptRecord, rank: int) -> bool:
    """Print one attempt's log to its end; return whether the unit has ended with it."""
    log, has_warned = LogTail(record.folder / f"rank{rank}.log"), False
    while True:
        # Read before the log: the log's last lines were written by then.
        latest = read_record(record.number, record.folder)
        later = any(number > record.number for number, _ in list_attempts(run.logs(unit)))
        log.print_new()
        is_final = _is_final(latest)
        if is_final or later or latest.decision in COMES_BACK:
            reason = f" ({latest.reason})" if latest.reason else ""
            echo(f"--- attempt {latest.number} ended: {latest.decision or latest.outcome or 'no word'}{reason}")
            return is_final and not later
        if latest.is_open and latest.beat and not latest.beat.is_fresh and not has_warned:
            echo(f"--- no sign of life since {time.strftime('%H:%M:%S', time.localtime(latest.beat.time))}")
            has_warned = True
        time.sleep(POLL_SECONDS)


def _is_final(record: AttemptRecord) -> bool:
    """Tell if no further attempt follows this one by itself."""
    if record.decision:
        return record.decision not in COMES_BACK
    if record.ended_well or (record.ended and record.job is None):
        return True
    return bool(record.ended) and time.time() - (record.stopped or 0.0) > VERDICT_SECONDS


class LogTail:
    """A growing text file, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place: int | None = None
        # A letter of several bytes may be half written.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def print_new(self) -> None:
        """Print the lines written since the last call; the first call prints the last lines."""
        try:
            # Opened at each call: NFS shows what other nodes have written only to a newly opened file.
            with open(checked_reads.open_regular(self._path), "rb") as file:
                if self._place is None:
                    self._place = self._last_lines(file)
                file.seek(self._place)
                content = file.read()
        except FileNotFoundError:
            return
        self._place += len(content)
        text = self._decoder.decode(content)
        # A line may not be whole yet: its end comes with the next call.
        click.echo("\n".join(printable(line, len(line)) for line in text.split("\n")), nl=False)

    def _last_lines(self, file: BinaryIO) -> int:
        if (size := file.seek(0, os.SEEK_END)) <= FIRST_BYTES:
            return 0
        file.seek(size - FIRST_BYTES)
        file.readline()
        return file.tell()
