"""PyTorch's tutorial on deep Q-learning, in a corridor instead of a gym."""

import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

device = torch.device(
    "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
)
random.seed(0)
torch.manual_seed(0)
if torch.cuda.is_available():
    torch.cuda.manual_seed(0)
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
BATCH_SIZE, GAMMA, TAU, LR, LENGTH = 32, 0.95, 0.01, 1e-3, 8
steps_done = 0


class Corridor:
    def reset(self):
        self.at = 0
        return self.observe()

    def observe(self):
        return [float(i == self.at) for i in range(LENGTH)]

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        done = self.at == LENGTH - 1
        return self.observe(), 1.0 if done else -0.05, done


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, n_actions)

    def forward(self, x):
        return self.layer3(torch.relu(self.layer2(torch.relu(self.layer1(x)))))


env = Corridor()
policy_net = DQN(LENGTH, 2).to(device)
target_net = DQN(LENGTH, 2).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True, foreach=True)
memory = deque([], maxlen=1000)


def select_action(state):
    global steps_done
    threshold = 0.05 + 0.85 * math.exp(-steps_done / 100)
    steps_done += 1
    if random.random() > threshold:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return None
    batch = Transition(*zip(*random.sample(memory, BATCH_SIZE)))
    mask = torch.tensor(tuple(s is not None for s in batch.next_state), device=device, dtype=torch.bool)
    following = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch = torch.cat(batch.state), torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)
    values = policy_net(state_batch).gather(1, action_batch)
    next_values = torch.zeros(BATCH_SIZE, device=device)
    with torch.no_grad():
        next_values[mask] = target_net(following).max(1).values
    loss = nn.SmoothL1Loss()(values, (next_values * GAMMA + reward_batch).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


for episode in range(6):
    state = torch.tensor(env.reset(), dtype=torch.float32, device=device).unsqueeze(0)
    losses = []
    for _ in range(25):
        action = select_action(state)
        observation, reward, done = env.step(action.item())
        reward = torch.tensor([reward], device=device)
        next_state = (
            None if done else torch.tensor(observation, dtype=torch.float32, device=device).unsqueeze(0)
        )
        memory.append(Transition(state, action, next_state, reward))
        state = next_state
        losses.append(optimize_model())
        target, policy = target_net.state_dict(), policy_net.state_dict()
        for key in policy:
            target[key] = policy[key] * TAU + target[key] * (1 - TAU)
        target_net.load_state_dict(target)
        if done:
            break
    print(f"episode {episode} loss {losses[-1]!r}")
