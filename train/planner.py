"""PLACEHOLDER of the trainer's author, to be overwritten whole by the planner's author."""

def pieces_of(llama, context_tokens, num_pieces):
    n = llama.num_hidden_layers
    cuts = [round(i * n / num_pieces) for i in range(num_pieces + 1)]
    return [range(a, b) for a, b in zip(cuts, cuts[1:])]

def pieces_of_rank(parallel, pipeline_rank):
    p = parallel.pipeline
    if parallel.schedule == "zbv" and p > 1:
        return [pipeline_rank, 2 * p - 1 - pipeline_rank]
    return [pipeline_rank + p * i for i in range(parallel.pieces_a_rank)]
