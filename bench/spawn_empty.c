/* The cheapest program there is; built static, and once more with the shared libc. */

int main(void) { return 0; }
