"""Graph roughness of influence (figures 4 and 10; the paper's section on how a behaviour is learned).

Do records that the final network represents alike have alike influence? Nodes are the records of positive influence,
each with the value I_i / max I, in (0, 1]. Roughness is the mean squared difference of values over the edges,
weighted by w_ij = exp(-|e_i - e_j|^2 / sigma^2) with e the embeddings of the final network: sum w_ij (v_i - v_j)^2 /
sum w_ij.

What the paper leaves open, and what is taken here: an embedding is the policy's last hidden layer; sigma is the
median of the distances of all pairs of nodes; an edge joins two nodes if either is among the other's u nearest, and
counts once; all nodes at the distance of the u-th nearest are among the nearest, so that equal observations are never
told apart by index.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import pdist, squareform

from rl_influence.ppo.networks import ActorCritic

NEIGHBOURS = (20, 50, 100)  # u; the paper says 20 to 100


@torch.no_grad()
def embeddings(policy: ActorCritic, observations: np.ndarray) -> np.ndarray:
    """Activations of the policy's last hidden layer, (n, 64)."""
    return policy.embedding(torch.from_numpy(np.ascontiguousarray(observations))).numpy()


def roughness_table(
    influence: np.ndarray, embedding: np.ndarray, *, neighbours: Sequence[int] = NEIGHBOURS
) -> pd.DataFrame:
    """Roughness of the influence (n,) of records with embeddings (n, dims), for several numbers of neighbours u.

    Returns:
        Rows with neighbours, sigma, nodes, edges, roughness; nan for fewer than two nodes. Where sigma is 0, only equal
        embeddings are joined.

    Raises:
        ValueError: for shapes that do not fit, values that are not finite, or u below 1.
    """
    influence, embedding = np.asarray(influence, dtype=float), np.asarray(embedding, dtype=float)
    if influence.ndim != 1 or embedding.ndim != 2 or len(influence) != len(embedding):
        raise ValueError(f"influence {influence.shape} and embedding {embedding.shape}: one row per record is needed")
    if not (np.isfinite(influence).all() and np.isfinite(embedding).all()):
        raise ValueError("influence and embedding must be finite")
    if min(neighbours) < 1:
        raise ValueError(f"neighbours {min(neighbours)}: at least 1 is needed")
    nodes = influence > 0
    n = int(nodes.sum())
    if n < 2:
        return pd.DataFrame({"neighbours": neighbours, "sigma": np.nan, "nodes": n, "edges": 0, "roughness": np.nan})
    values = influence[nodes] / influence[nodes].max()
    pairs = pdist(embedding[nodes])
    sigma = float(np.median(pairs))
    distances = squareform(pairs)
    np.fill_diagonal(distances, np.inf)
    nearest = [min(u, n - 1) - 1 for u in neighbours]
    ranked = np.partition(distances, sorted(set(nearest)), axis=1)
    rows = []
    for u, position in zip(neighbours, nearest, strict=True):
        near = distances <= ranked[:, position, None]
        i, j = np.nonzero(np.triu(near | near.T, 1))
        d = distances[i, j]
        weights = np.exp(-((d / sigma) ** 2)) if sigma > 0 else (d == 0).astype(float)
        rows.append((u, sigma, n, len(d), float(weights @ (values[i] - values[j]) ** 2 / weights.sum())))
    return pd.DataFrame(rows, columns=["neighbours", "sigma", "nodes", "edges", "roughness"])
