"""stagekit: a staged-metaprogramming kernel builder."""
