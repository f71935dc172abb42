// Names from YNNPACK that the thunk headers of XLA:CPU mention; the wheel has no headers of
// YNNPACK. They are those of 2.21: Thunk::YnnParams is another one in 2.20, and 2.19 has none.
//
// YNNPACK is used, but only by TensorFlow's library: Thunk::YnnParams::Create makes its thread pool
// and hands over a pointer. None of the functions below is exported, so this library may destroy no
// object that holds such a pointer: runtime/program.cc keeps the one it asks for.
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
