"""PyTorch's word language model: an LSTM, in the style of old scripts."""

import argparse
import math

import torch
import torch.nn as nn
from torch.autograd import Variable

parser = argparse.ArgumentParser(description="LSTM language model")
parser.add_argument("--emsize", type=int, default=64)
parser.add_argument("--nhid", type=int, default=96)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--lr", type=float, default=5)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--disable-cuda", action="store_true", help="Disable CUDA")
args = parser.parse_args()
args.cuda = not args.disable_cuda and torch.cuda.is_available()
torch.manual_seed(1111)
if args.cuda:
    torch.cuda.manual_seed(1111)
ntokens, bptt, bsz = 800, 20, 10


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(ntokens, args.emsize)
        self.rnn = nn.LSTM(args.emsize, args.nhid, args.nlayers)
        self.decoder = nn.Linear(args.nhid, ntokens)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output.view(output.size(0) * output.size(1), output.size(2))), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters()).data
        return tuple(Variable(weight.new(args.nlayers, bsz, args.nhid).zero_()) for _ in range(2))


words = (torch.cumsum(torch.randint(1, 3, (1210,)), 0) % ntokens).view(bsz, -1).t().contiguous()
if args.cuda:
    words = words.cuda()
model = RNNModel()
if args.cuda:
    model.cuda()
criterion = nn.CrossEntropyLoss()
hidden = model.init_hidden(bsz)
for i in range(0, words.size(0) - 1, bptt):
    seq_len = min(bptt, len(words) - 1 - i)
    data, targets = words[i : i + seq_len], words[i + 1 : i + 1 + seq_len].view(-1)
    hidden = tuple(h.detach() for h in hidden)
    model.zero_grad()
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip, foreach=True)
    for p in model.parameters():
        p.data.add_(p.grad.data, alpha=-args.lr)
    print(f"batch {i // bptt} loss {loss.item()!r} ppl {math.exp(loss.item()):8.2f}")
