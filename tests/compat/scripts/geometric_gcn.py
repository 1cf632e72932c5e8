"""PyTorch Geometric: graph networks on a graph, and on batches of small ones."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, TransformerConv, global_mean_pool

device = torch.accelerator.current_accelerator() or torch.device("cpu")
drawn = torch.Generator().manual_seed(1)
whole = Data(
    x=torch.randn(80, 16, generator=drawn),
    edge_index=torch.randint(0, 80, (2, 320), generator=drawn),
    y=torch.randint(0, 4, (80,), generator=drawn),
)
small = [
    Data(
        x=torch.randn(10, 16, generator=drawn),
        edge_index=torch.randint(0, 10, (2, 24), generator=drawn),
        y=torch.randint(0, 4, (1,), generator=drawn),
    )
    for _ in range(24)
]
convolutions = {
    "GCNConv": GCNConv,
    "SAGEConv": SAGEConv,
    "GATConv": GATConv,
    "TransformerConv": TransformerConv,
    "GINConv": lambda inside, outside: GINConv(torch.nn.Linear(inside, outside)),
}


class Net(torch.nn.Module):
    def __init__(self, convolution):
        super().__init__()
        self.first, self.second = convolution(16, 32), convolution(32, 32)
        self.last = torch.nn.Linear(32, 4)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        x = self.second(x, data.edge_index).relu()
        return self.last(x if data.batch is None else global_mean_pool(x, data.batch))


def trained(convolution):
    torch.manual_seed(0)
    model = Net(convolution).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for data in [whole, *DataLoader(small, batch_size=8)]:
            data = data.clone().to(device)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(data), data.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model.state_dict()


results = {name: trained(convolution) for name, convolution in convolutions.items()}
