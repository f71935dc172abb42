#include "cc/transfer/python_state.h"

#include <dlfcn.h>

namespace tf_tpu_ext {
namespace {

template <typename Function>
void Find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// The library doesn't link against Python.
const PythonFunctions& PythonOfProcess() {
  static const PythonFunctions python = [] {
    PythonFunctions found;
    Find("Py_IsInitialized", &found.is_initialized);
    Find("PyGILState_Ensure", &found.ensure);
    Find("PyEval_SaveThread", &found.save_thread);
    return found;
  }();
  return python;
}

thread_local bool has_state = false;

}  // namespace

void KeepPythonState() { KeepPythonState(PythonOfProcess()); }

void KeepPythonState(const PythonFunctions& python) {
  if (has_state) return;
  if (python.is_initialized == nullptr || python.ensure == nullptr ||
      python.save_thread == nullptr || python.is_initialized() == 0) {
    return;
  }
  has_state = true;
  // Never released: a later PyGILState_Ensure on this thread finds the state, and takes only the
  // interpreter's lock, which is released here.
  python.ensure();
  python.save_thread();
}

}  // namespace tf_tpu_ext
