"""Settings of the tests of the square-root Transformer."""

from hypothesis import HealthCheck, settings

# A busy machine may take longer over an example than Hypothesis expects of an idle one.
settings.register_profile(
    "exact", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25
)
settings.load_profile("exact")
