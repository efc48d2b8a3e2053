"""Commands about jobs: submitted, listed, read, waited for, changed and cancelled."""
