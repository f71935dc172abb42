#include "cc/transfer/python_state.h"

#include <atomic>
#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

std::atomic<int> initialized{1};
std::atomic<int> states{0};
std::atomic<int> locks_held{0};

// A Python that counts its calls.
constexpr PythonFunctions kPython = {
    [] { return initialized.load(); },
    [] {
      ++states;
      return ++locks_held;
    },
    []() -> void* {
      --locks_held;
      return nullptr;
    },
};

// Runs on a new thread, because each thread remembers whether it has a state.
void OnAThread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(PythonStateTest, EachThreadTakesOneStateAndKeepsNoLock) {
  states = 0;
  for (int i = 0; i < 3; ++i) {
    OnAThread([] {
      KeepPythonState(kPython);
      KeepPythonState(kPython);
    });
  }
  EXPECT_EQ(states, 3);
  // A thread that kept the interpreter's lock would stop all the others.
  EXPECT_EQ(locks_held, 0);
}

TEST(PythonStateTest, AsksAgainWherePythonWasNotThereYet) {
  OnAThread([] {
    states = 0;
    initialized = 0;
    KeepPythonState(kPython);
    EXPECT_EQ(states, 0);
    initialized = 1;
    KeepPythonState(kPython);
    EXPECT_EQ(states, 1);
  });
}

TEST(PythonStateTest, AProcessWithoutPythonIsLeftAlone) {
  OnAThread([] {
    states = 0;
    PythonFunctions part = kPython;
    part.save_thread = nullptr;
    KeepPythonState(PythonFunctions());
    KeepPythonState(part);
    // This test program has no Python either.
    KeepPythonState();
    EXPECT_EQ(states, 0);
    KeepPythonState(kPython);
    EXPECT_EQ(states, 1);
  });
}

}  // namespace
}  // namespace tf_tpu_ext
