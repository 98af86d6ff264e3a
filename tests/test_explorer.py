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
from support.browser import brightness, open_browser, set_screen

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
BANK = "adaptive filter bank"
BANK_OPERATIONS = ["max", "min", "median", "std", "mean"]
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
    unshifted = name.endswith("-ga") and bool(random.integers(2))
    hops = int(random.integers(4)) if unshifted else problem["hops"]
    count = (hops + unshifted) * (4 if name == "mixture-ga" else 1)
    weights = random.choice([-1.0, -0.5, 0.25, 0.5, 1.0], count).tolist()
    given = {"activation": name, "hops": hops, "unshifted": unshifted, "weights": weights}
    return {**problem, **given, "parameters": PARAMETERS.get(name, {})}


def with_bank(problem, random, then):
    """A bank with some of the functions, in any order."""
    operations = random.permutation(BANK_OPERATIONS)[: random.integers(1, 6)].tolist()
    choices = [-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]
    weights = random.choice(choices, len(operations) * problem["hops"]).tolist()
    taps = random.choice(choices, problem["hops"] + 1).tolist()
    given = {"operations": operations, "taps": taps, "weights": weights, "bias": 0.25, "then": then}
    return {**problem, "activation": BANK, **given}


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
        options |= {"unshifted": True} if problem["unshifted"] else {}
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


def bank_of(problem):
    """The bank and, unless it is the identity, the function that follows."""
    options = {"order": problem["hops"], "ops": problem["operations"], "closed": problem["closed"]}
    bank = graphact.nn.AdaptiveFilterBank(1, 1, **options).double()
    with torch.no_grad():
        bank.taps[:] = torch.tensor(problem["taps"]).view(-1, 1, 1)
        bank.function_taps[:] = torch.tensor(problem["weights"]).view(bank.function_taps.shape)
        bank.bias.fill_(problem["bias"])
    if problem["then"] == "identity":
        return bank
    return graphact.nn.Sequential(bank, graphact.nn.make_activation(problem["then"]))


def computed_by(page, problems):
    return page.execute_script(
        "return arguments[0].map(problem => { const {outputs, jacobian, bounds} = compute(problem);"
        " return {outputs, jacobian: jacobian.map(row => [...row]), bounds}; })",
        problems,
    )


def check_answer(answer, problem, module, graph):
    """Compare outputs and, where rounding cannot break a tie in another way, gradients."""
    nodes = problem["nodes"]
    x = torch.tensor(problem["x"], dtype=torch.float64).expand(nodes, -1)[..., None].clone().requires_grad_()
    outputs = module(x, graph)
    close = {"rtol": 1e-6, "atol": 1e-6, "err_msg": str(problem)}
    np.testing.assert_allclose(answer["outputs"], outputs[0, :, 0].detach(), **close)
    if problem["is_exact"]:
        (jacobian,) = torch.autograd.grad(outputs[..., 0].diagonal().sum(), x)
        np.testing.assert_allclose(answer["jacobian"], jacobian[..., 0], **close)


def test_the_list_of_activations(page):
    assert set(page.execute_script("return ACTIVATIONS")) == set(graphact.nn.ACTIVATIONS) - LEFT_OUT


def test_values_gradients_and_bounds_on_random_graphs(page):
    names = page.execute_script("return ACTIVATIONS")
    random = np.random.default_rng(0)
    problems = [with_activation(random_graph(seed), name, random) for seed in range(100) for name in names]
    found = computed_by(page, problems)
    certified = set()
    for problem, answer in zip(problems, found, strict=True):
        module, graph = module_of(problem), graph_of(problem)
        check_answer(answer, problem, module, graph)
        try:
            bounds = lipschitz_bound(module, graph).per_node
        except UnsupportedModelError:
            assert answer["bounds"] is None, problem["activation"]
            continue
        certified.add(problem["activation"])
        np.testing.assert_allclose(answer["bounds"], bounds, rtol=1e-6, atol=1e-6, err_msg=str(problem))
    assert certified == set(names) - {"weighted-mean-ga", "mixture-ga", "shiftless-max", "shiftless-median"}


def test_banks_on_random_graphs(page):
    """Of every number of rounds and set of functions: outputs, gradients, and the certified bound."""
    random, then = np.random.default_rng(1), page.execute_script("return BANK_THEN")
    assert {"relu", "gelu", "identity"} <= set(then) <= set(graphact.nn.ACTIVATIONS)
    assert page.execute_script("return BANK_OPERATIONS") == BANK_OPERATIONS
    problems = [with_bank(random_graph(seed), random, then[seed % len(then)]) for seed in range(150)]
    for problem, answer in zip(problems, computed_by(page, problems), strict=True):
        module, graph = bank_of(problem), graph_of(problem)
        check_answer(answer, problem, module, graph)
        bounds = lipschitz_bound(module, graph).per_node
        np.testing.assert_allclose(answer["bounds"], bounds, rtol=1e-6, atol=1e-6, err_msg=str(problem))


def test_rounds_on_random_graphs(page):
    """Compare what is sent and formed in each round with the library's own passes."""
    functional, random = graphact.functional, np.random.default_rng(2)
    operations = {"max": functional.neighborhood_max, "median": functional.neighborhood_median}
    problems = [with_bank(random_graph(seed), random, "gelu") | {"operations": ["max", "median"]} for seed in range(40)]
    problems = [problem | {"weights": [1.0] * 2 * problem["hops"]} for problem in problems]
    found = page.execute_script("return arguments[0].map(roundsOf)", problems)
    for problem, rounds in zip(problems, found, strict=True):
        graph, y = graph_of(problem), torch.tensor(problem["x"], dtype=torch.float64)[:, None]
        assert len(rounds) == problem["hops"]
        for each in rounds:
            np.testing.assert_allclose(each["sent"], y[:, 0], atol=1e-6, rtol=1e-6)
            for function in each["functions"]:
                expected = operations[function["name"]](y, graph, closed=problem["closed"])
                np.testing.assert_allclose(function["values"], expected[:, 0], atol=1e-6, rtol=1e-6)
            y = functional.shift(y, graph)
            np.testing.assert_allclose(each["shift"], y[:, 0], atol=1e-6, rtol=1e-6)


def test_rounds_of_activations(page):
    """As many as the description of a module counts, and as the table of activations says."""
    for name in page.execute_script("return ACTIVATIONS"):
        for unshifted in {False, name.endswith("-ga")}:
            problem = with_activation(random_graph(3) | {"hops": 2}, name, np.random.default_rng(4))
            count = (2 + unshifted) * (4 if name == "mixture-ga" else 1)
            problem |= {"hops": 2, "unshifted": unshifted, "weights": [0.5] * count}
            rounds = page.execute_script("return roundsOf(arguments[0])", problem)
            assert len(rounds) == sum(layer.exchanges for layer in module_of(problem).layers()), name
            formed = sum(len(each["functions"]) for each in rounds)
            assert formed == (0 if not rounds else count), name


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

    choose(page, "activation", "max-ga")
    type_into(page, "#hops", "1")
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


def test_rounds_by_mouse(page):
    """A bank on a path: what node 1 receives and computes, by buttons, by dragging and as an animation."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.wait import WebDriverWait

    def caption():
        return page.find_element("id", "roundCaption").text

    def told():
        return [row.text for row in page.find_elements("css selector", "#rows tr")]

    def press(identity):
        page.find_element("id", identity).click()

    choose(page, "preset", "path")  # 0 - 1 - 2 - ... with 1, -2, 4, 0.5, -1, 2
    assert page.find_element("id", "activation").get_attribute("value") == BANK
    page.find_element("css selector", "#rounds circle[data-node='1']").click()
    assert caption() == "2 rounds of messages: press play"
    assert told() == [
        "round receives shift max",
        "1 1 from 0, 4 from 2 5 4 (of 2)",
        "2 -2 from 0, -1.5 from 2 -3.5 -1.5 (of 2)",
    ]
    assert not page.find_element("id", "back").is_enabled()
    press("next")
    assert caption() == "round 1 of 2: every node holds its shift; in the box the max"
    assert shown_in(page, "rounds")[:3] == ["-2", "5", "-1.5"]
    assert shown_in(page, "rounds")[6:9] == ["-2", "4", "0.5"]  # the maxima
    press("next")
    assert not page.find_element("id", "next").is_enabled()
    mixed = page.find_element("id", "mixed").text
    assert mixed.startswith(
        "z = 0.5·(-2) [x] + 0.5·5 [Sx] + 0.5·(-3.5) [S²x] + 0.5·4 [max x] + 0.5·(-1.5) [max Sx] = 1;"
    )
    assert mixed.endswith("output = gelu(z) = 0.841")
    page.find_element("css selector", "[data-operation=min]").click()
    assert told()[1] == "1 1 from 0, 4 from 2 5 4 (of 2) 1 (of 0)"
    dragged = page.find_element("css selector", "#signal circle[data-node='0']")
    ActionChains(page).click_and_hold(dragged).move_by_offset(0, -160).release().perform()
    page.find_element("css selector", "#rounds circle[data-node='1']").click()
    assert told()[1] == "1 5 from 0, 4 from 2 9 5 (of 0) 4 (of 2)"
    press("back")
    press("back")
    press("play")
    messages = "return document.querySelectorAll('circle.message.heard').length"
    WebDriverWait(page, 10, 0.02).until(lambda driver: driver.execute_script(messages) == 2)
    heard = page.execute_script(
        "return [...document.querySelectorAll('#rounds text.told')].map(text => text.textContent)"
    )
    assert heard == ["5", "4"]
    assert caption() == "round 1 of 2: every node sends x"
    WebDriverWait(page, 20, 0.02).until(lambda _: caption().startswith("round 2 of 2: every node holds"))
    choose(page, "activation", "max-ga")  # the paper's: the first round computes no function
    assert told()[1].endswith("none")
    page.find_element("id", "unshifted").click()
    assert "none" not in told()[1]


def test_pictures_share_their_colours_and_stay_in_place(page):
    """A value has one colour in signal, rounds and output; a longer caption does not move the graph."""

    def fills():
        pictures = (
            "return ['signal', 'rounds', 'output'].map(id => [...document.querySelectorAll(`#${id} circle[data-node]`)]"
        )
        found = page.execute_script(
            f"{pictures}.map(node => [node.getAttribute('aria-label'), node.getAttribute('fill')]))"
        )
        return [(label.partition(", ")[2], fill) for picture in found for label, fill in picture]

    def top():
        return page.execute_script("return document.getElementById('rounds').getBoundingClientRect().top")

    choose(page, "preset", "path")
    for width in (1280, 800, 390):
        set_screen(page, width, "light")
        tops = {top()}
        for _ in range(2):
            page.execute_script("document.getElementById('next').click()")
            tops.add(top())
            colours = fills()
            assert len(colours) == 18
            assert len(dict(colours)) == len(set(colours))
        page.execute_script("setTime(0); show()")
        assert len(tops) == 1


def test_inside_another_page(page):
    page.get(f"{PAGE.as_uri()}?embed")
    assert page.find_element("id", "rounds").is_displayed()
    assert not page.find_element("id", "python").is_displayed()
    page.execute_script("postMessage({theme: 'dark'}, '*')")
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert brightness(page.execute_script("return getComputedStyle(document.body).backgroundColor")) < 100


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
    names = page.execute_script("return ACTIVATIONS")
    cases = [(name, False) for name in [*names, BANK]]
    cases += [(name, True) for name in names if name.endswith("-ga")]
    for name, unshifted in cases:
        choose(page, "activation", name)
        if page.find_element("id", "unshifted").is_selected() != unshifted and name.endswith("-ga"):
            page.find_element("id", "unshifted").click()
        code = page.find_element("id", "python").text.replace("print(act(x, graph).squeeze(-1))", "out = act(x, graph)")
        names = {}
        before = torch.get_default_dtype()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)
        finally:
            torch.set_default_dtype(before)
        assert ("unshifted=True" in code) == unshifted
        expected = page.execute_script("return compute(problemOf()).outputs")
        np.testing.assert_allclose(names["out"].detach().numpy()[:, 0], expected, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(page, scheme):
    set_screen(page, 390, scheme)
    choose(page, "activation", "mixture-ga")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    is_wider = "each => each.scrollWidth > each.clientWidth + 1"
    is_cut = f"return [...document.querySelectorAll('pre, .scroll')].filter({is_wider}).length"
    assert page.execute_script(is_cut) == 0
