#ifndef TF_TPU_EXT_CC_PROGRAM_TAKEN_QUEUES_H_
#define TF_TPU_EXT_CC_PROGRAM_TAKEN_QUEUES_H_

namespace tf_tpu_ext {

// The queues of its cores from which a program takes.
struct TakenQueues {
  bool infeed = false;
  bool embedding = false;

  bool any() const { return infeed || embedding; }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_TAKEN_QUEUES_H_
