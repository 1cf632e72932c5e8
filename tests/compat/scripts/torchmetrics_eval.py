"""torchmetrics: metrics that live on the device of their inputs."""

import torch
import torchmetrics as tm

device = torch.accelerator.current_accelerator() or torch.device("cpu")
classes = {"task": "multiclass", "num_classes": 5}
metrics = {
    "Accuracy": tm.Accuracy(**classes),
    "F1Score": tm.F1Score(**classes, average="macro"),
    "AUROC": tm.AUROC(**classes),
    "AveragePrecision": tm.AveragePrecision(**classes),
    "ConfusionMatrix": tm.ConfusionMatrix(**classes),
    "CohenKappa": tm.CohenKappa(**classes),
    "CalibrationError": tm.CalibrationError(**classes),
    "MatthewsCorrCoef": tm.MatthewsCorrCoef(**classes),
}
numbers = {
    "MeanSquaredError": tm.MeanSquaredError(),
    "PearsonCorrCoef": tm.PearsonCorrCoef(),
    "SpearmanCorrCoef": tm.SpearmanCorrCoef(),
    "R2Score": tm.R2Score(),
    "ExplainedVariance": tm.ExplainedVariance(),
    "KendallRankCorrCoef": tm.KendallRankCorrCoef(),
}
images = {
    "StructuralSimilarity": tm.image.StructuralSimilarityIndexMeasure(data_range=1.0),
    "PeakSignalNoiseRatio": tm.image.PeakSignalNoiseRatio(data_range=1.0),
}
drawn = torch.Generator().manual_seed(0)
results = {}
for name, metric in {**metrics, **numbers, **images}.items():
    metric = metric.to(device)
    for _ in range(3):
        if name in metrics:
            batch = (
                torch.randn(64, 5, generator=drawn).softmax(1),
                torch.randint(0, 5, (64,), generator=drawn),
            )
        elif name in numbers:
            batch = torch.randn(64, generator=drawn), torch.randn(64, generator=drawn)
        else:
            batch = torch.rand(2, 3, 32, 32, generator=drawn), torch.rand(2, 3, 32, 32, generator=drawn)
        metric.update(*(part.to(device) for part in batch))
    results[name] = metric.compute()
