"""Scales a run's actors to nothing once its learner's Job has completed or failed.

    python scale_down.py learner-pong actor-pong

The pod of scale-down.yaml runs it, with the right to `get` that Job and to `patch` the scale of
that Deployment. It asks every few seconds and does not watch, so it also survives an API server
that restarts. It runs in the actor's image, and uses the standard library only.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 10.0
ENDED = ("Complete", "Failed")


class Api(NamedTuple):
    """The API server as a pod finds it."""

    url: str
    """Address, without a slash at the end."""
    account: Path
    """Directory of the service account: namespace, token and ca.crt."""

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Returns the answer to a call about an object of the pod's namespace.

        The token is read each time, since Kubernetes replaces it within an hour.

        Raises:
          OSError, http.client.HTTPException, ValueError: no answer, a refusal, or no JSON.
        """
        group, rest = path.split("/", 1)
        namespace = (self.account / "namespace").read_text().strip()
        request = urllib.request.Request(
            f"{self.url}/apis/{group}/v1/namespaces/{namespace}/{rest}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {(self.account / 'token').read_text().strip()}",
                "Content-Type": "application/merge-patch+json",
            },
        )
        trust = ssl.create_default_context(cafile=os.fspath(self.account / "ca.crt"))
        # The API server is in the cluster: a proxy of the environment does not reach it.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


def end_of(api: Api, job: str) -> str | None:
    """Returns "Complete" or "Failed" once the Job has ended for good, else None."""
    status = api.call("GET", f"batch/jobs/{job}").get("status", {})
    true = [c["type"] for c in status.get("conditions", ()) if c["status"] == "True"]
    return next((name for name in ENDED if name in true), None)


def scale_down_when_ended(api: Api, job: str, deployment: str) -> bool:
    """Sets the Deployment's replicas to 0 if the Job has ended; returns whether it has."""
    end = end_of(api, job)
    if end is None:
        return False
    api.call("PATCH", f"apps/deployments/{deployment}/scale", {"spec": {"replicas": 0}})
    print(f"job {job} is {end}: scaled deployment {deployment} to 0", flush=True)
    return True


def url_of(environment: Mapping[str, str]) -> str:
    """Returns the API server's address from the variables that every pod has."""
    host, port = (environment[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def main() -> None:
    """Asks every few seconds until the Job has ended and the actors are scaled to nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("deployment")
    parser.add_argument("--every-s", type=float, default=15.0)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    args = parser.parse_args()
    api, said = Api(url_of(os.environ), args.account), ""
    while True:
        try:
            if scale_down_when_ended(api, args.job, args.deployment):
                return
            problem = ""
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Of these, 404 is a Job that its owner has deleted, to start it again.
            problem = f"cannot scale down {args.deployment} yet, trying again: {error}"
        if problem not in ("", said):
            print(problem, file=sys.stderr, flush=True)
        said = problem
        time.sleep(args.every_s)


if __name__ == "__main__":
    main()
