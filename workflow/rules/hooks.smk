# Before the first job, beside the jobs, and after the last. None of it happens when snakemake only plans, unlocks or lists.
import logging

from rl_influence.analysis.registry import check_results
from rl_influence.config import EXACT_HEURISTICS, check_environments
from rl_influence.publish.ledger import Ledger
from rl_influence.publish.readme import cases, headline, saved
from rl_influence.runs.progress import Progress, outcome
from snakemake.logging import logger


def parallel():
    """Jobs that may run at the same time."""
    return workflow.cores if workflow.local_exec else workflow.nodes


class Lines(logging.Handler):
    """Prints a line per run that has ended, with the time left, in place of Snakemake's account of every job."""

    def __init__(self):
        super().__init__()
        done = [folder for folder in RUNS if os.path.exists(f"{folder}/manifest.json")]
        self.progress, self.folders = Progress(RUNS, done, parallel()), {}

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == "job_info" and record.rule_name == "train":
            self.folders[record.jobid] = folder = RUN.format(**record.wildcards)
            self.progress.start(folder)
        elif event == "job_finished" and record.job_id in self.folders:
            folder = self.folders[record.job_id]
            print(f"{self.progress.finish(folder)} | {outcome(RUNS[folder], folder)}", flush=True)


def quietly():
    """Warnings and errors only, where Snakemake writes on the terminal; its log file has everything."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.addFilter(lambda record: record.levelno > logging.INFO)


def waiting():
    """The environments of runs and analyses that are not there yet."""
    jobs = RUNS | {folder: analysis.run for folder, analysis in ANALYSES.items()}
    names = [run.environment for folder, run in jobs.items() if not os.path.exists(f"{folder}/manifest.json")]
    return [STUDY.environments[name] for name in dict.fromkeys(names)]


onstart:
    with in_one_line():
        check_results(STUDY)
        if CAN_TRAIN:
            exact = {run.environment for run in STUDY.runs if run.spec.selection.kind in EXACT_HEURISTICS}
            check_environments(waiting(), exact)
    if not logger.isEnabledFor(logging.DEBUG):  # --verbose
        logger.addHandler(Lines())
        quietly()


onsuccess:
    if os.path.exists(CLAIMS["claims"]):  # a call for some file may have needed none
        ledger = Ledger(Path("."), (STUDY.study,), STUDY)
        print(*filter(None, (headline(ledger).strip("*"), saved(ledger), cases(ledger))), sep="\n")
    if os.path.exists(REPORT):
        print(f"open {REPORT}", flush=True)


onerror:
    print(
        f"Not all of it was done: the lines above say why, logs are in {LOGS}/, and the same command goes on.",
        flush=True,
    )
