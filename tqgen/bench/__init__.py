"""How fast generated kernels are: on a GPU against floors and competitors, without one by what they compile to.

`cases` says what is measured and how many bytes it has to move, `timing` measures one thing, `kernels` and `against`
set up the module's kernels and their competitors, `run` goes through the cases, `table` and `chart` show what came of
them, and `without_gpu` is for machines that have none. All but `cases`, `table` and `chart` need torch.
"""
