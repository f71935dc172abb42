// Names from YNNPACK that XLA:CPU's thunk headers mention; the wheel has no YNNPACK headers. These
// are the names of 2.21: Thunk::YnnParams is different in 2.20, and 2.19 has none.
//
// Only TensorFlow's library uses YNNPACK: Thunk::YnnParams::Create makes its thread pool and
// returns a pointer. None of the functions below is exported, so this library must not destroy an
// object that holds such a pointer: runtime/program.cc keeps the one that it gets.
#ifndef TF_TPU_EXT_CC_ABI_YNNPACK_INCLUDE_YNNPACK_H_
#define TF_TPU_EXT_CC_ABI_YNNPACK_INCLUDE_YNNPACK_H_

extern "C" {
enum ynn_status {
  ynn_status_success,
  ynn_status_deprecated,
  ynn_status_error,
  ynn_status_invalid_parameter,
  ynn_status_unsupported_parameter,
};
enum ynn_type { ynn_type_invalid };
struct ynn_subgraph;
struct ynn_runtime;
struct ynn_threadpool;
typedef ynn_subgraph* ynn_subgraph_t;
typedef ynn_runtime* ynn_runtime_t;
typedef ynn_threadpool* ynn_threadpool_t;
void ynn_delete_subgraph(ynn_subgraph* subgraph);
void ynn_delete_runtime(ynn_runtime* runtime);
void ynn_delete_threadpool(ynn_threadpool* threadpool);
}

#endif  // TF_TPU_EXT_CC_ABI_YNNPACK_INCLUDE_YNNPACK_H_
