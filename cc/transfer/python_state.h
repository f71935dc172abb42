#ifndef TF_TPU_EXT_CC_TRANSFER_PYTHON_STATE_H_
#define TF_TPU_EXT_CC_TRANSFER_PYTHON_STATE_H_

namespace tf_tpu_ext {

// Gives the calling thread a Python thread state that it keeps, unless it already has one or the
// process has no Python. Otherwise, TensorFlow's kernels create a state for each call to a Python
// function and delete it afterwards: its stack is mapped and unmapped, and whatever Python code
// keeps per thread is recreated. For threads that live as long as the process.
void KeepPythonState();

// Python's functions with these names; null in a process without Python.
struct PythonFunctions {
  int (*is_initialized)() = nullptr;
  int (*ensure)() = nullptr;  // Returns PyGILState_STATE, an enum.
  void* (*save_thread)() = nullptr;
};

// The same, with the given Python.
void KeepPythonState(const PythonFunctions& python);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_PYTHON_STATE_H_
