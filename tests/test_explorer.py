"""The explorer page computes what the library computes, and does what is clicked."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch

import graphact
from graphact.guarantees import lipschitz_bound
from graphact.spec import UnsupportedModelError
from support.browser import open_browser, set_screen

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parent.parent / "docs" / "_static" / "explorer.html"
LEFT_OUT = {"max-k", "grelu", "digraf"}  # read several features, or are made by a trained network
TRAINED = ("temperature", "width")
PARAMETERS = {
    "kernel-ga": {"gamma": 0.7},
    "soft-maximum-ga": {"temperature": 0.6},
    "trimmed-mean-ga": {"trim": 0.3},
    "weighted-mean-ga": {"width": 0.8},
    "prelu": {"slope": -0.4},
    "maxout": {"a1": 0.75, "b1": 0.5, "a2": -1.25, "b2": 0.25},
}
KINDS = [None, "symmetric", "gcn", "random_walk", "laplacian"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(browser):
    set_screen(browser, 1280, "light")
    browser.get_log("browser")
    browser.get(PAGE.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def random_graph(seed):
    """Of nine nodes at most, some with ties, some directed, some with self-loops, isolated nodes, weights below 0."""
    random = np.random.default_rng(seed)
    nodes = int(random.integers(1, 10))
    present = random.random((nodes, nodes)) < random.choice([0.0, 0.2, 0.5, 0.9])
    if seed % 2:
        present |= present.T
    np.fill_diagonal(present, random.random(nodes) < (0.3 if seed % 3 == 0 else 0))
    target, source = np.nonzero(present)
    weight = random.choice([0.5, 1.0, 2.0] if seed % 5 else [-1.0, -0.5, 1.0], len(source))
    exact = seed % 4 < 2  # sums without rounding, and many ties
    x = random.integers(-2, 3, nodes).astype(float) if exact else random.normal(size=nodes)
    return {
        "nodes": nodes,
        "edges": [[int(a), int(b), float(w)] for a, b, w in zip(source, target, weight, strict=True)],
        "normalize": None if exact or seed % 5 == 0 else KINDS[seed % 5],
        "x": x.tolist(),
        "hops": int(random.integers(1, 4)),
        "closed": bool(random.integers(2)),
        "beta": float(random.choice([1.0, 0.5, -0.75])),
        "is_exact": exact,
    }


def with_activation(problem, name, random):
    count = problem["hops"] * (4 if name == "mixture-ga" else 1)
    weights = random.choice([-1.0, -0.5, 0.25, 0.5, 1.0], count).tolist()
    return {**problem, "activation": name, "weights": weights, "parameters": PARAMETERS.get(name, {})}


def graph_of(problem):
    edges = torch.tensor([edge[:2] for edge in problem["edges"]], dtype=torch.int64).view(-1, 2).T
    weight = torch.tensor([edge[2] for edge in problem["edges"]], dtype=torch.float64)
    graph = graphact.Graph.from_edge_index(edges, weight, num_nodes=problem["nodes"])
    return graph if problem["normalize"] is None else graph.normalize(problem["normalize"])


def module_of(problem):
    name, parameters = problem["activation"], problem["parameters"]
    options = {}
    if name.startswith("shiftless"):
        options = {"features": 1, "hops": problem["hops"]}
    elif name.endswith(("-ga", "-l")):
        options = {"hops": problem["hops"], "closed": problem["closed"], **parameters}
        options |= {f"learn_{key}": False for key in parameters if key in TRAINED}
    module = graphact.nn.make_activation(name, **options).double()
    with torch.no_grad():
        weights = torch.tensor(problem["weights"], dtype=torch.float64)
        if name.startswith("shiftless"):
            module.weight[:], module.bias[:] = weights.view(-1, 1, 1), 0
        elif hasattr(module, "weights"):
            module.weights[:] = weights.view(module.weights.shape)
        if hasattr(module, "beta"):
            module.beta.fill_(problem["beta"])
        if name == "prelu":
            module.slope.fill_(parameters["slope"])
        if name == "maxout":
            module.slope[:] = torch.tensor([parameters["a1"], parameters["a2"]])
            module.offset[:] = torch.tensor([parameters["b1"], parameters["b2"]])
    return module


def test_the_list_of_activations(page):
    assert set(page.execute_script("return ACTIVATIONS")) == set(graphact.nn.ACTIVATIONS) - LEFT_OUT


def test_values_gradients_and_bounds_on_random_graphs(page):
    names = page.execute_script("return ACTIVATIONS")
    random = np.random.default_rng(0)
    problems = [with_activation(random_graph(seed), name, random) for seed in range(100) for name in names]
    found = page.execute_script(
        "return arguments[0].map(problem => { const {outputs, jacobian, bounds} = compute(problem);"
        " return {outputs, jacobian: jacobian.map(row => [...row]), bounds}; })",
        problems,
    )
    certified = set()
    for problem, answer in zip(problems, found, strict=True):
        module, graph, nodes = module_of(problem), graph_of(problem), problem["nodes"]
        x = torch.tensor(problem["x"], dtype=torch.float64).expand(nodes, -1)[..., None].clone().requires_grad_()
        outputs = module(x, graph)
        np.testing.assert_allclose(
            answer["outputs"], outputs[0, :, 0].detach(), rtol=1e-6, atol=1e-6, err_msg=str(problem)
        )
        if problem["is_exact"]:  # otherwise rounding may break a tie of sums in another way
            (jacobian,) = torch.autograd.grad(outputs[..., 0].diagonal().sum(), x)
            np.testing.assert_allclose(answer["jacobian"], jacobian[..., 0], rtol=1e-6, atol=1e-6, err_msg=str(problem))
        try:
            bounds = lipschitz_bound(module, graph).per_node
        except UnsupportedModelError:
            assert answer["bounds"] is None, problem["activation"]
            continue
        certified.add(problem["activation"])
        np.testing.assert_allclose(answer["bounds"], bounds, rtol=1e-6, atol=1e-6, err_msg=str(problem))
    assert certified == set(names) - {"weighted-mean-ga", "mixture-ga", "shiftless-max", "shiftless-median"}


def choose(browser, identity, value):
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("id", identity)).select_by_visible_text(value)


def type_into(browser, selector, text):
    field = browser.find_element("css selector", selector)
    browser.execute_script("arguments[0].value = arguments[1]", field, text)
    browser.execute_script("arguments[0].dispatchEvent(new Event('change', {bubbles: true}))", field)


def shown_in(browser, panel):
    return [text.text for text in browser.find_elements("css selector", f"#{panel} text")]


def test_clicking(page):
    from selenium.webdriver.common.action_chains import ActionChains

    choose(page, "preset", "path")  # and on to the example of docs/start.md: 0 - 1 - 2 with 1, -2, 4
    page.find_element("css selector", "input[value=node]").click()
    for _ in range(3):
        page.find_element("css selector", "#signal circle[data-node='3']").click()
    assert len(page.find_elements("css selector", "#signal circle")) == 3
    page.find_element("css selector", "input[value=signal]").click()
    type_into(page, "[data-weight='0']", "1")
    assert shown_in(page, "signal") == ["1", "-2", "4"]
    assert shown_in(page, "output") == ["6", "-2", "9"]
    page.find_element("css selector", "#output circle[data-node='1']").click()
    lines = page.find_elements("css selector", "#gradient line.chosen")
    assert [line.get_attribute("data-from") for line in lines] == ["0"]  # of 0 and 2, which tie, the first
    assert "node 1" in page.find_element("id", "gradientCaption").text
    page.find_element("css selector", "input[value=connect]").click()
    for node in (0, 2):
        page.find_element("css selector", f"#signal circle[data-node='{node}']").click()
    assert len(page.find_elements("css selector", "#signal line.edge")) == 3
    choose(page, "activation", "kernel-ga")
    assert page.find_elements("css selector", "[data-parameter=gamma]")
    choose(page, "activation", "relu")
    assert not page.find_elements("css selector", "[data-weight]")
    assert shown_in(page, "output") == ["1", "0", "4"]
    choose(page, "activation", "mixture-ga")
    assert "none is certified" in page.find_element("id", "boundCaption").text
    page.find_element("css selector", "input[value=signal]").click()
    dragged = page.find_element("css selector", "#signal circle[data-node='0']")
    ActionChains(page).click_and_hold(dragged).move_by_offset(0, -80).release().perform()
    assert shown_in(page, "signal")[0] == "3"


def test_keys(page):
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        page.switch_to.active_element.send_keys(*keys)

    choose(page, "preset", "path")
    page.find_element("id", "signal").find_element("css selector", "circle[tabindex='0']").send_keys(Keys.ARROW_RIGHT)
    focused = page.switch_to.active_element
    assert focused.get_attribute("aria-label") == "node 1, -2"  # a redrawn picture keeps the focus
    press(Keys.ARROW_UP)
    press(Keys.SHIFT, Keys.ARROW_UP)
    assert shown_in(page, "signal")[1] == "-0.9"
    press("+")
    assert len(page.find_elements("css selector", "#signal circle")) == 7
    assert page.switch_to.active_element.get_attribute("data-node") == "6"
    press(Keys.DELETE)
    assert len(page.find_elements("css selector", "#signal circle")) == 6
    page.find_element("css selector", "input[value=connect]").click()
    page.find_element("css selector", "#signal circle[tabindex='0']").send_keys(Keys.ENTER)
    press(Keys.ARROW_LEFT)
    press(Keys.ARROW_LEFT)
    press(Keys.ENTER)
    assert len(page.find_elements("css selector", "#signal line.edge")) == 6
    field = page.find_element("css selector", "[data-value='2']")
    field.send_keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert shown_in(page, "signal")[2] == "4.2"
    assert page.switch_to.active_element.get_attribute("data-value") == "2"


def test_the_python_beside_it(page):
    choose(page, "preset", "path and two nodes alone")
    choose(page, "normalize", "symmetric")
    type_into(page, "#hops", "2")
    for name in page.execute_script("return ACTIVATIONS"):
        choose(page, "activation", name)
        code = page.find_element("id", "python").text.replace("print(act(x, graph).squeeze(-1))", "out = act(x, graph)")
        names = {}
        before = torch.get_default_dtype()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)
        finally:
            torch.set_default_dtype(before)
        expected = page.execute_script("return compute(problemOf()).outputs")
        np.testing.assert_allclose(names["out"].detach().numpy()[:, 0], expected, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(page, scheme):
    set_screen(page, 390, scheme)
    choose(page, "activation", "mixture-ga")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
