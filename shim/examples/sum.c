/* Attaches to a state and prints the sum of one of its tensors.
 *
 *   cc -std=c11 sum.c $(pkg-config --cflags --libs stickyinvoc) -o sum
 *   ./sum STATE TENSOR
 */
#include <stdio.h>
#include <stickyinvoc/stickyinvoc.h>
#include <string.h>

/* The element at `index` of an f32 or bf16 tensor; bf16 is the upper half of an f32. */
static double element(const sti_tensor* tensor, uint64_t index) {
  if (tensor->dtype == STI_F32) return ((const float*)tensor->data)[index];
  const uint32_t bits = (uint32_t)((const uint16_t*)tensor->data)[index] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

int main(int argc, char** argv) {
  sti_state* state = NULL;
  sti_tensor tensor;
  sti_error error;
  if (argc != 3) {
    fprintf(stderr, "usage: %s STATE TENSOR\n", argv[0]);
    return 64;
  }
  if (sti_attach(argv[1], NULL, &state, &error) != STI_OK ||
      sti_tensor_find(state, argv[2], &tensor, &error) != STI_OK) {
    fprintf(stderr, "%s\n", error.message);
    return error.code == STI_UNAVAILABLE ? 69 : 66;
  }
  if (tensor.dtype != STI_F32 && tensor.dtype != STI_BF16) {
    fprintf(stderr, "%s has dtype %s, not f32 or bf16\n", argv[2], sti_dtype_name(tensor.dtype));
    return 65;
  }
  const uint64_t count = tensor.size_bytes / (tensor.dtype == STI_F32 ? 4 : 2);
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += element(&tensor, i);
  printf("%s: %llu elements, sum %.6f\n", tensor.name, (unsigned long long)count, sum);
  sti_detach(state);
  return 0;
}
