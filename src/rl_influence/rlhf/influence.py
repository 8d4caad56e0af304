"""temporary"""
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from rl_influence.attribution.targets import target_gradient

class _W(nn.Module):
    def __init__(s, policy, objective): super().__init__(); s.policy=policy; s.o=objective
    def forward(s,batch): return s.o(s.policy,batch)

@torch.no_grad()
def sequence_influence(policy, batch, target, objective, *, backend, max_tokens):
    chunk=max(1,max_tokens//batch.tokens.shape[1])
    d=target_gradient(policy,target,chunk)
    w=_W(policy,objective); tr=dict(policy.named_parameters())
    pr={f"policy.{n}":tr[n].detach() for n in d}; ta={f"policy.{n}":t for n,t in d.items()}
    out=[]
    for i in range(0,len(batch),chunk):
        part=batch[i:i+chunk]
        with sdpa_kernel(SDPBackend.MATH):
            out.append(torch.func.jvp(lambda v: torch.func.functional_call(w,v,(part,)),(pr,),(ta,))[1])
    return torch.cat(out)
