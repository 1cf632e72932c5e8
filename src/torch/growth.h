// Whether the cards' memory is taken as it is needed (the default), or each card's whole budget at once, so
// that nobody else on the machine gets it. What is taken stays with PyTorch's caching allocator, out of which
// all that is charged comes. Simulated cards and the host are nobody else's or everybody's: nothing is taken
// there.
//
// Thread safety: all functions.
#pragma once

namespace innkeeper::torch_layer {

// The setting: what was set last, else INNKEEPER_GROWTH, else on. It counts when the runtime starts.
bool grows();
void set_grows(bool grows);
// Throws where the variable says neither on nor off.
void check_growth_setting();

}  // namespace innkeeper::torch_layer
