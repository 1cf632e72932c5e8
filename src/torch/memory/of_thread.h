// Something that each thread has for itself, made when the thread first asks and destroyed when it ends. What
// is asked for later, by destructors that run as the thread ends, is null.
//
// Thread safety: what get() returns is the calling thread's alone.
#pragma once

namespace innkeeper::torch_layer {

template <class T>
class OfThread {
 public:
  static T* get() {
    if (it_ != nullptr) [[likely]]
      return it_;
    if (over_) return nullptr;
    static thread_local Life life;
    return it_;
  }

 private:
  struct Life {
    Life() { it_ = &value; }
    ~Life() {
      it_ = nullptr;
      over_ = true;
    }
    T value;
  };

  // Constants at first, so that to ask costs no call.
  inline static constinit thread_local T* it_ = nullptr;
  inline static constinit thread_local bool over_ = false;
};

}  // namespace innkeeper::torch_layer
