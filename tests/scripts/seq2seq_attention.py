"""Translation by an encoder on cuda:0 and a decoder with attention on cuda:1, with teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

SOS, EOS, MAX_LENGTH, hidden, vocab = 0, 1, 8, 32, 20
enc_device = torch.device("cuda:0" if torch.cuda.device_count() > 1 else "cpu")
dec_device = torch.device("cuda:1" if torch.cuda.device_count() > 1 else "cpu")
random.seed(0)
torch.manual_seed(0)


class EncoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, num_layers=2, batch_first=True)

    def forward(self, words):
        return self.gru(self.embedding(words))


class AttnDecoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, keys, state, target=None):
        word = torch.full((keys.size(0), 1), SOS, dtype=torch.long, device=dec_device)
        outputs, attentions = [], []
        for i in range(MAX_LENGTH):
            scores = self.Va(torch.tanh(self.Wa(state.transpose(0, 1)) + self.Ua(keys)))
            weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
            x = torch.cat((self.embedding(word), torch.bmm(weights, keys)), dim=2)
            output, state = self.gru(x, state)
            outputs.append(self.out(output))
            attentions.append(weights)
            word = target[:, i : i + 1] if target is not None else outputs[-1].argmax(-1).detach()
        return F.log_softmax(torch.cat(outputs, 1), -1), torch.cat(attentions, 1)


encoder, decoder = EncoderRNN().to(enc_device), AttnDecoderRNN().to(dec_device)
optimizers = [torch.optim.Adam(m.parameters(), lr=5e-3, foreach=True) for m in (encoder, decoder)]
criterion = nn.NLLLoss(ignore_index=-100)
for epoch in range(8):
    source = torch.randint(2, vocab, (16, MAX_LENGTH - 1))
    target = torch.cat([source.flip(1), torch.full((16, 1), EOS)], 1).to(dec_device)
    for optimizer in optimizers:
        optimizer.zero_grad()
    keys, state = encoder(source.to(enc_device))
    teacher = target if random.random() < 0.5 else None
    output, _ = decoder(keys.to(dec_device), state[-1:].to(dec_device), teacher)
    loss = criterion(output.flatten(0, 1), target.flatten())
    loss.backward()
    norms = [nn.utils.clip_grad_norm_(m.parameters(), 1.0).item() for m in (encoder, decoder)]
    for optimizer in optimizers:
        optimizer.step()
    print(f"epoch {epoch} {'forced' if teacher is not None else 'free'} loss {loss.item()!r} norms {norms}")
with torch.no_grad():
    keys, state = encoder(torch.arange(2, 2 + MAX_LENGTH - 1, device=enc_device)[None])
    output, attention = decoder(keys.to(dec_device), state[-1:].to(dec_device))
print("says", output.argmax(-1).tolist(), "looks at", attention[0].argmax(-1).tolist())
