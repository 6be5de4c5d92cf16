"""Lightning: a module of one's own, trained on handwritten digits to a third of its energy by a callback.

pip install 'picojoule[lightning,tensorboard]'; python docs/examples/lightning_digits.py [csv | tensorboard | wandb]

The lines that picojoule adds are marked. What the callback logs goes to every logger that the trainer has.
"""

from __future__ import annotations

import sys
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning import loggers
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

import picojoule as pj

EPOCHS, BATCH = 8, 25


class Digits(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), pj.Spike()),
            *(nn.Linear(64, 64), nn.BatchNorm1d(64), pj.Spike(), nn.Linear(64, 10)),
        )
        self.accuracy = MulticlassAccuracy(10, average="micro")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        self.accuracy(self(batch[0]), batch[1])
        self.log("val_accuracy", self.accuracy)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-3)
        updates = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    """The original 8×8 pixels."""
    digits = pj.data.load("digits")
    train, test = (
        TensorDataset(digits.normalization(part.images.float() / 255)[:, :, ::4, ::4], part.labels)
        for part in (digits.train, digits.test)
    )
    return DataLoader(train, BATCH, shuffle=True), DataLoader(test, 200)


def logger(kind: str, folder: str) -> Any:
    if kind == "wandb":
        return loggers.WandbLogger(project="picojoule", save_dir=folder, offline=True)
    return {"csv": loggers.CSVLogger, "tensorboard": loggers.TensorBoardLogger}[kind](folder)


def train(kind: str = "csv", folder: str = "logs", epochs: int = EPOCHS) -> tuple[pl.Trainer, pj.EnergyCallback]:
    pl.seed_everything(0)
    training, validation = loaders()
    sample = torch.stack([training.dataset[i][0] for i in range(0, 1200, 4)])
    energy = pj.EnergyCallback(sample, budget="33%", classes=10)  # picojoule
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[energy],  # picojoule
        logger=logger(kind, folder),
        accelerator="cpu",
        enable_progress_bar=False,
    )
    trainer.fit(Digits(), training, validation)
    return trainer, energy


if __name__ == "__main__":
    trainer, energy = train(*sys.argv[1:2])
    assert energy.budget is not None
    assert energy.budget.target is not None
    print({name: round(float(value), 12) for name, value in trainer.callback_metrics.items()})
    print(f"asked for {energy.budget.target * 1e9:.3f} nJ, spends {energy.budget.joules() * 1e9:.3f} nJ")
    print(energy.report)
