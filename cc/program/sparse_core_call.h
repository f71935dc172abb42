// The custom calls through which a core's SparseCores look up rows and update them.
#ifndef TF_TPU_EXT_CC_PROGRAM_SPARSE_CORE_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_SPARSE_CORE_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"
#include "tensorflow/core/protobuf/tpu/optimization_parameters.pb.h"

namespace tf_tpu_ext {

// Operands: the packed ids of all chips, this chip's number, and its part of the table. Result:
// what this chip's rows contribute to the activations of all chips.
inline constexpr char kSparseLookupTarget[] = "tf_tpu_ext_sparse_core_lookup";
// Operands: the packed ids of all chips, this chip's number, the gradients of all chips'
// activations, the learning rate, and this chip's part of the table and of its slots. Results: the
// updated table part and slots.
inline constexpr char kSparseUpdateTarget[] = "tf_tpu_ext_sparse_core_update";
// Operands: the packed ids of all chips, this chip's number, and the gradients of all chips'
// activations. Results: which rows of this chip's part of the table have gradients, those
// gradients, and the number of such rows.
inline constexpr char kSparseGradientsTarget[] = "tf_tpu_ext_sparse_core_gradients";

// The layout of the operands. A chip's packed ids are one array of 32-bit words: its row pointers,
// the samples of its ids, their rows, their gains, and its number of minibatches.
struct SparseCoreShape {
  // The original TensorFlow op and its table, for errors.
  std::string op;
  std::string table;
  int chips = 1;
  int cores_per_chip = 1;
  // Of one chip.
  int row_pointers = 0;
  int ids = 0;
  int samples = 0;
  // Of the part of the table on one chip.
  int rows = 0;
  int width = 0;
  // How many ids a SparseCore may take from another SparseCore's samples at once; 0 if there is no
  // limit.
  int max_ids = 0;

  // Of one chip.
  int64_t words() const { return int64_t{row_pointers} + 3 * int64_t{ids} + 1; }
};

struct SparseLookupCall {
  SparseCoreShape shape;
  tensorflow::tpu::SimulatedQuantization quantization;
};

struct SparseUpdateCall {
  SparseCoreShape shape;
  // Its learning rate is the dynamic input 0.
  tensorflow::tpu::OptimizationParameters optimizer;
};

struct SparseGradientsCall {
  SparseCoreShape shape;
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const SparseLookupCall& call);
std::string Encode(const SparseUpdateCall& call);
std::string Encode(const SparseGradientsCall& call);
absl::StatusOr<SparseLookupCall> DecodeSparseLookupCall(const CallAttributes& attributes);
absl::StatusOr<SparseUpdateCall> DecodeSparseUpdateCall(const CallAttributes& attributes);
absl::StatusOr<SparseGradientsCall> DecodeSparseGradientsCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_SPARSE_CORE_CALL_H_
