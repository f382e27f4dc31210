"""The hooks of all code hosts."""

from outcrop.domain.push import HookHost
from outcrop.sources.hooks import azuredevops, bitbucket, gitea, github, gitlab
from outcrop.sources.hooks.delivery import HookProtocol

PROTOCOLS: dict[HookHost, HookProtocol] = {
    HookHost.GITHUB: github.PROTOCOL,
    HookHost.GITLAB: gitlab.PROTOCOL,
    HookHost.GITEA: gitea.PROTOCOL,
    HookHost.BITBUCKET: bitbucket.PROTOCOL,
    HookHost.AZUREDEVOPS: azuredevops.PROTOCOL,
}
