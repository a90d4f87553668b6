"""The training loop: steps, validations, patience, checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.ccp import state_copy
from sumpool.data import Batch
from sumpool.losses import LOSSES
from sumpool.training.alternating import Alternating
from sumpool.training.budget.pace import Pace
from sumpool.training.checkpoint import random_state, restore_random_state
from sumpool.training.config import TrainConfig
from sumpool.training.cuda_graph_step import CudaGraphStep
from sumpool.training.errors import check_finite
from sumpool.training.interrupts import Interrupts
from sumpool.training.journal import Journal
from sumpool.training.optimization import (
    WeightAverage,
    build_optimizer,
    build_plateau,
    follow_schedule,
    keep_rates_on,
    parameter_groups,
)
from sumpool.training.phases import Phases
from sumpool.training.run_folder import RunFolder
from sumpool.training.step import (
    TrainPass,
    average_gradients,
    compile_pass,
    gather,
    loss_terms,
    record,
    with_centers,
)
from sumpool.training.task import Outcome, Progress, Task

logger = logging.getLogger(__name__)

#: Steps between two lines of the log.
LOG_EVERY = 50


class Trainer:
    """Trains the model of a task; interrupted runs resume bit for bit.

    After :meth:`fit` the model holds the weights of its best validation, or with ``stop.keep``
    "last" those of the last step; with ``optimizer.ema`` their averages, and with
    ``optimizer.start_share`` these mixed with the initial weights.

    Args:
        fabric: Devices, processes and precision; launched.
        task: Model, loss, data and validation.
        config: The resolved configuration.
        folder: Folder of checkpoints and logs; None writes nothing.
        progress: Whether to show a progress bar.
    """

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        config: TrainConfig,
        folder: RunFolder | None = None,
        *,
        progress: bool = True,
    ) -> None:
        self._keep_last = config.stop.keep == "last"
        self._pace = Pace(fabric, config)
        self.fabric, self.task, self.config, self.folder = fabric, task, config, folder
        self.progress = Progress()
        nhwc = config.hardware.channels_last and fabric.device.type == "cuda"
        self.model = task.model.to(fabric.device)
        if nhwc:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.criterion = task.criterion.to(fabric.device)
        self._groups = parameter_groups(
            self.model, self.criterion, own_prototypes=config.gsp.lr_multiplier != 1
        )
        self._class_of = task.class_of.to(fabric.device)
        raw, zero_shot = LOSSES[config.loss].raw, hasattr(self.criterion, "zero_shot")
        self._train_pass = TrainPass(self.model, zero_shot, nhwc, raw)
        self._pass: nn.Module = fabric.setup_module(compile_pass(self._train_pass, config.hardware))
        optimizer = build_optimizer(
            self._groups,
            config.optimizer,
            config.zero_shot.lr_multiplier,
            config.gsp.lr_multiplier,
            fused=fabric.device.type == "cuda",
            recorded_on=fabric.device if config.hardware.cuda_step else None,
        )
        self._plateau = build_plateau(optimizer, config.optimizer)
        decay, share = config.optimizer.ema, config.optimizer.start_share or 0.0
        averages = decay is not None or share > 0
        self._average = WeightAverage(self.model, decay or 0.0, share) if averages else None
        wrapped = fabric.setup_optimizers(optimizer)
        assert not isinstance(wrapped, tuple)
        self.optimizer = wrapped
        self._recorded = CudaGraphStep(self._step) if config.hardware.cuda_step else None
        self._phases = Phases(fabric, task, config, self._class_of)
        self._best: dict[str, dict[str, Any]] | None = None
        self._sums: dict[str, Tensor] = {}
        self._since_log, self._saved_at = 0, time.monotonic()
        self._journal = Journal(fabric, config, folder, bar=progress)
        self._regularizer = None if task.regularizer is None else task.regularizer.to(fabric.device)
        #: Runs the problems of chance-constrained proxies; None without them.
        self.alternating = (
            Alternating(fabric, task, config, optimizer, self._journal, trace=folder is None)
            if config.ccp.enabled
            else None
        )

    def fit(
        self, *, resume: bool = False, validate_first: bool = False, began: float | None = None
    ) -> Outcome:
        """Train until patience, ``max_steps`` or ``minutes`` run out, or a signal arrives.

        Args:
            resume: Continue from the newest checkpoint in the folder; without one, from step 0.
            validate_first: Also validate and log at step 0; this never selects the model.
            began: ``time.monotonic`` at the start of this part of the run; None is the first step.

        Raises:
            RunError: If the loss is no longer finite, or a checkpoint cannot be written or used.
        """
        if resume:
            self._load()
        with closing(self._journal):
            solved = 0 if self.alternating is None else len(self.alternating.problems)
            self._journal.open(self.progress, resume=resume, solved=solved)
            self.model.train()
            self._prepare()
            with closing(self._batches()) as batches, Interrupts() as interrupts:
                if validate_first and self.progress.step == 0:
                    metrics = self.task.measure(self.fabric, self.config.stop.monitor, 0)
                    self._journal.validated(self.progress, metrics, is_best=False)
                self._pace.begin(self.progress, began)
                outcome = self._run(batches, interrupts)
            if self.alternating is not None and outcome.stopped != "interrupted":
                self.alternating.close(self.progress.step)
        if self._keep_last:
            outcome = replace(outcome, best_step=outcome.steps)
            if self._average is not None:
                self._average.apply()
        elif outcome.best_step:
            self._go_back()
        return outcome

    def _go_back(self) -> None:
        if self._best is not None:
            self.model.load_state_dict(self._best["model"])
            self.criterion.load_state_dict(self._best["criterion"])

    def _run(self, batches: Iterator[Batch], interrupts: Interrupts) -> Outcome:
        progress, pace = self.progress, self._pace
        reason = pace.end(progress)
        if reason is None and self.alternating is not None and self.alternating.due:
            self._next_problem()  # it ended with the last step of a run that now trains longer
        while reason is None:
            if self._phases.enter(progress.step) and self._recorded is not None:
                self._recorded.forget()
            schedule = self.optimizer.optimizer, self.config.optimizer
            if follow_schedule(*schedule, progress.step, pace.done_and_total(progress)):
                self._go_back()
            batch = next(batches)
            self._add(self._recorded(batch) if self._recorded else self._step(batch))
            progress.step += 1
            if self._average is not None:
                # Before prototypes are picked there is nothing to average.
                self._average.update(progress.step - self.config.gsp.average_steps)
            pace.tick(progress)
            self._journal.advance(progress)
            validate = pace.validates(progress)
            if self._since_log == LOG_EVERY or validate:
                self._log()
            if validate:
                with nullcontext() if self._average is None else self._average.applied():
                    ended = self._validate()
                pace.tick(progress)
            reason = pace.end(progress)
            if validate and reason is None and ended:
                self._next_problem()
            if interrupts.asked(self.fabric, progress.step):
                self._save()
                return Outcome("interrupted", progress.step, progress.best_step, interrupts.name)
            due = time.monotonic() - self._saved_at >= self.config.checkpoint_seconds
            # With a time budget there may be no validation before the end, so save at any step.
            checked = validate or pace.budget is not None
            if checked and reason is None and self.fabric.broadcast(due):
                self._save()
        self._save()
        return Outcome(reason, progress.step, progress.best_step)

    def _next_problem(self) -> None:
        assert self.alternating is not None
        pulled = self.alternating.pulled
        self.alternating.turn(self.progress.step)
        # The second problem adds the pull to the step; everything else changes in place.
        if self._recorded is not None and not pulled:
            self._recorded.forget()

    def _batches(self) -> Any:
        return self.task.feed.train_batches(self.task.sampler, start=self.progress.step)

    def _prepare(self) -> None:
        # The first batch comes from a separate iterator, since iterators may fetch ahead, and
        # nothing else may use the device while a graph is recorded.
        with closing(self._batches()) as batches:
            batch = next(batches)
        self._phases.begin(batch, self.progress.step)
        if self._average is not None and self.progress.step == 0:
            self._average.begin()
        if self.alternating is not None and self.progress.step == 0:
            self.alternating.begin()
        if self.config.hardware.cuda_graph:
            self._pass = record(self._train_pass, batch.images, self.fabric)

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        fabric = self.fabric
        with fabric.autocast():
            embeddings, *attributes = self._pass(batch.images)
        embeddings = gather(fabric, embeddings, gradients=True)
        labels = gather(fabric, self._class_of[batch.labels], gradients=False)
        shared = gather(fabric, attributes[0], gradients=True) if attributes else None
        terms = loss_terms(self.criterion, embeddings, labels, shared)
        terms = with_centers(terms, self.criterion, self._regularizer, self.config.center.weight)
        self.optimizer.zero_grad(set_to_none=True)
        fabric.backward(terms["loss"])
        average_gradients(fabric, self.criterion)
        if self.alternating is not None:
            self.alternating.add_pull()
        # Adam changes neither a parameter without a gradient nor its moments.
        for parameter in self._phases.resting(self.progress.step, self._groups.backbone):
            parameter.grad = None
        self.optimizer.step()
        return {name: value.detach() for name, value in terms.items()}

    def _add(self, terms: dict[str, Tensor]) -> None:
        # Kept on the device: reading a value would wait for it.
        for name, value in terms.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        if self.fabric.device.type == "cpu":
            self._check_finite(float(terms["loss"]), f"in step {self.progress.step + 1}")
        self._since_log += 1

    def _log(self) -> None:
        means = {name: float(total) / self._since_log for name, total in self._sums.items()}
        self._check_finite(means["loss"], f"in the steps up to {self.progress.step}")
        images = self._since_log * self.config.batch_size
        rate = float(self.optimizer.param_groups[0]["lr"])
        self._journal.log(self.progress, means, rate, images)
        self._sums, self._since_log = {}, 0

    def _check_finite(self, loss: float, when: str) -> None:
        kept = "nothing" if self.folder is None else self.folder.checkpoints.describe_newest()
        check_finite(loss, when, float(self.optimizer.param_groups[0]["lr"]), kept)

    def _validate(self) -> bool:
        # Returns whether the validation ends a problem of chance-constrained proxies.
        monitor = self.config.stop.monitor
        metrics = self.task.measure(self.fabric, monitor, self.progress.step)
        value = metrics[monitor]
        # Before its prototypes are picked, the model cannot be selected.
        begun = self.progress.step > self.config.gsp.average_steps
        is_best = begun and value > self.progress.best_value
        if is_best:
            self.progress.best_value, self.progress.best_step = value, self.progress.step
            self.progress.stale = 0
            parts = {"model": self.model, "criterion": self.criterion}
            if not self._keep_last:
                self._best = {name: state_copy(part) for name, part in parts.items()}
        elif begun:
            self.progress.stale += 1
        if self._plateau is not None:
            self._plateau.step(value)
        self._journal.validated(self.progress, metrics, is_best)
        step = self.progress.step
        return self.alternating is not None and self.alternating.validated(value, step)

    def _save(self) -> None:
        if self.folder is None:
            return
        if "loss" in self._sums:
            self._check_finite(float(self._sums["loss"]), f"up to step {self.progress.step}")
        if self.fabric.is_global_zero:
            self.folder.checkpoints.save(self.progress.step, self._state())
        self.fabric.barrier()
        self._saved_at = time.monotonic()

    def _stateful(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "criterion": self.criterion,
            "optimizer": self.optimizer,
            "plateau": self._plateau,
            "average": self._average,
            "regularizer": self._regularizer,
            "alternating": self.alternating,
        }

    def _state(self) -> dict[str, Any]:
        parts = self._stateful().items()
        return {
            **{name: None if part is None else part.state_dict() for name, part in parts},
            "progress": asdict(self.progress),
            "best": self._best,
            "sums": self._sums,
            "since_log": self._since_log,
            "zero_shot_weight": self._phases.zero_shot_weight,
            **random_state(self.fabric.device),
        }

    def _load(self) -> None:
        state = None if self.folder is None else self.folder.checkpoints.load()
        if self.folder is None or state is None:
            logger.warning("there is no checkpoint yet: the run starts from step 0")
            return
        with self.folder.checkpoints.restoring():
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        device = self.fabric.device
        for name, part in self._stateful().items():
            if part is not None:
                part.load_state_dict(state[name])
        if self.config.hardware.cuda_step:
            keep_rates_on(self.optimizer.optimizer, device)
        self.progress = Progress(**state["progress"])
        self._best = state["best"]
        self._sums = {name: value.to(device) for name, value in state["sums"].items()}
        self._since_log = state["since_log"]
        self._phases.zero_shot_weight = state["zero_shot_weight"]
        restore_random_state(state, device)
