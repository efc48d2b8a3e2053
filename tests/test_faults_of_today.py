"""What no project about rabbits tests, and users meet with: each has its tests here, by name.

A fault counts as tested by functions that are run as tests, in the modules that the table names.
"""

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.test_seed_statements import is_test

TESTS: Final = Path(__file__).parent

FAULTS: Final[dict[str, list[str]]] = {
    "the API server is gone": [
        "faults/test_scripts.py::test_a_job_lives_through_an_outage_of_an_hour",
        "faults/test_scripts.py::test_tasks_run_on_while_the_api_is_down",
        "faults/test_wire.py::test_a_write_is_done_in_the_end",
    ],
    "the API server is slow": [
        "faults/test_scripts.py::test_whatever_befalls_the_first_write_of_every_sort_the_job_completes",
        "faults/test_scripts.py::test_each_kind_may_be_behind_all_others",
    ],
    "a watch ends with 410, tells twice, or out of order": [
        "faults/test_scripts.py::test_whatever_befalls_the_first_watches_of_every_kind_the_job_completes",
        "faults/test_schedules.py::test_the_job_completes",
    ],
    "the service is killed between two writes": [
        "faults/test_crashes.py::test_a_stop_after_any_write_changes_nothing_in_the_end",
        "faults/test_crashes.py::test_nor_does_a_stop_of_the_process_that_takes_it_up",
        "faults/test_crashes.py::test_whenever_and_however_often_it_is_stopped_all_promises_hold",
    ],
    "requests are lost, repeated or late, both ways": [
        "system/test_lost_requests.py::test_whatever_befalls_the_first_requests_of_each_sort_the_job_completes",
        "wlm/test_jobs.py::test_requests_that_are_repeated_change_nothing",
        "flux/test_jobtap.py::test_a_request_that_is_lost_is_sent_again",
    ],
    "a Workflow is deleted by hand": [
        "system/test_one_job.py::test_a_deleted_workflow_ends_its_job_with_a_reason",
        "dws/test_conduct.py::test_a_workflow_that_goes_is_past_when_it_was_let_go_and_its_job_is_over",
    ],
    "plugin and service are of different versions": [
        "wlm/test_jobs.py::test_an_answer_of_another_version_is_told_and_costs_no_job",
        "wlm/test_jobs.py::test_a_request_that_is_malformed_is_refused_with_its_path",
    ],
    "750 to 10,000 Workflows at a time": [
        "conductor/test_many.py::test_hundreds_of_jobs_at_a_time_have_their_storage_and_give_it_back",
    ],
    "a resource graph of 720 rabbits": [
        "scheduling/test_rabbitgraph.py::test_the_graph_of_720_rabbits_has_each_vertex_once_and_in_its_place",
    ],
    "a timer goes off before, when and after what it is for ends": [
        "system/test_timeouts.py::test_what_ends_about_when_its_time_is_up_has_ended_in_time_or_late_and_not_both",
        "system/test_timeouts.py::test_the_time_of_a_state_that_has_ended_is_never_up",
        "dws/test_timeouts.py::test_more_progress_never_makes_a_deadline_earlier",
    ],
    "two exceptions in each state": [
        "conductor/test_cancel.py::test_a_second_exception_after_one_in_any_state_ends_the_job_no_worse",
    ],
    "a node crashes in each state": [
        "system/test_silent_nodes.py::test_a_node_that_is_silent_for_a_while_in_any_state_delays_the_job",
        "journeys/test_every_state.py::test_after_a_power_cut_in_any_state_the_job_completes_or_says_why_not",
        "journeys/test_every_state.py::test_a_job_survives_an_agent_while_it_has_work",
        "journeys/test_survival.py::test_nodes_whose_holders_are_killed_are_made_again_at_once_with_what_was_mounted_there",
    ],
    "as many nodes are lost as are tolerated, and one more": [
        "system/test_tolerance.py::test_a_job_goes_on_without_as_many_nodes_as_it_may_lose",
        "system/test_tolerance.py::test_a_job_that_loses_one_more_has_failed",
    ],
    "capacities have decimals and units": [
        "directives/test_capacity.py::test_units_are_decimal_or_binary",
        "directives/test_capacity.py::test_what_is_no_capacity_is_refused_with_an_example",
        "directives/test_capacity.py::test_a_capacity_in_whole_units_is_suggested",
    ],
    "the rabbit mapping is stale": [
        "dws/test_rabbitmapping.py::test_nodes_that_a_rabbit_has_against_the_configuration_are_told",
        "scheduling/test_rabbitgraph.py::test_mapped_nodes_that_are_not_in_r_are_found_and_left_out",
        "conductor/test_alone.py::test_a_job_on_a_node_without_a_rabbit_fails",
    ],
    "a copy stands still, or is slow and goes on": [
        "system/test_timeouts.py::test_a_copy_that_does_not_go_on_is_given_up_and_the_job_has_not_failed",
        "system/test_timeouts.py::test_a_copy_that_goes_on_has_the_time_that_it_takes",
        "controllers/test_movement.py::test_a_copy_that_hangs_does_not_go_on_by_saying_so",
    ],
    "what is kept in the KVS has bounds": [
        "dws/test_summary.py::test_of_many_copies_it_names_a_hundred",
        "dws/test_podsummary.py::test_a_summary_is_bounded_and_names_what_failed_first",
        "conductor/test_logtails.py::test_the_end_of_a_log_is_kept",
        "instance/test_quota.py::test_a_user_takes_no_more_than_half_of_what_the_disk_has_left",
    ],
    "properties and drains of nodes outlive what they are for": [
        "faults/test_crashes.py::test_a_node_that_stays_drained_is_found",
        "system/test_lost_links.py::test_tags_and_drains_of_a_link_that_came_back_meanwhile_do_not_outlive_a_restart",
        "system/test_lost_links.py::test_a_tag_is_there_again_after_a_restart_and_none_without_its_rabbit",
    ],
}
"""The tests of each."""


def functions_in(module: str) -> set[str]:
    tree = ast.parse((TESTS / module).read_text())
    found = (each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in found if is_test(each.name)}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_tests(fault: str) -> None:
    assert FAULTS[fault]
    for name in FAULTS[fault]:
        module, test = name.split("::")
        assert test in functions_in(module), name
