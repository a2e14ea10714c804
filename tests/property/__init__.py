"""Properties, tried with the same examples in every run, however slow the machine is. To look for new ones:
HYPOTHESIS_PROFILE=explore.

Hypothesis is used in this folder only: it is slow to import, and other tests start many processes.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
