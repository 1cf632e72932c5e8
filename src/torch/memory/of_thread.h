// A T for each thread, made at the thread's first call and destroyed when the thread ends. After that, get()
// returns null, to destructors that run while the thread ends.
//
// Thread safety: only the calling thread may use the result of get().
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

  // Initialized by constants, so that a read costs no call.
  inline static constinit thread_local T* it_ = nullptr;
  inline static constinit thread_local bool over_ = false;
};

}  // namespace innkeeper::torch_layer
