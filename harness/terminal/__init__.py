"""What `harness run` and `harness chat` share: the kernel for this folder, one turn, questions, the keyboard."""
