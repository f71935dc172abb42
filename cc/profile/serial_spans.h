// Turns spans of time that overlap arbitrarily into what a line of a profile can show.
#ifndef TF_TPU_EXT_CC_PROFILE_SERIAL_SPANS_H_
#define TF_TPU_EXT_CC_PROFILE_SERIAL_SPANS_H_

#include <cstdint>
#include <vector>

namespace tf_tpu_ext {

struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  // Whether spans inside of it belong to it. Otherwise, another thread merely worked meanwhile.
  bool has_parts = true;
};

// The spans of a line, taken in `order`, are either nested or disjoint: XProf uses that to compute
// which time belongs to which span. Where two overlap and one is no part of the other, because two
// threads worked for the core, the time belongs to the one that began last: the other one is cut
// short.
struct SerialSpans {
  // For each given span, how it is shown.
  std::vector<Span> spans;
  // Their indices by time, outer ones first.
  std::vector<int> order;
};

SerialSpans MakeSerial(std::vector<Span> spans);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_SERIAL_SPANS_H_
