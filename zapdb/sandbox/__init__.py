"""What runs in processes of its own: `inside` is their code, `processes` starts and ends them."""
