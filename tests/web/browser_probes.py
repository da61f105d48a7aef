"""Probes of a page in the browser, as JavaScript functions: widths, places, contrast, names, brightness."""

from __future__ import annotations

TOO_WIDE = """() => {
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    return [...document.querySelectorAll("body *")]
        .filter(node => node.getBoundingClientRect().right > innerWidth + 1)
        .filter(node => !node.closest(".table-frame, .graph, pre, .quicks, .side"))
        .map(node => `${node.tagName}.${node.getAttribute("class")}`)
        .concat("the page");
}"""
"""The elements that make the page wider than the window."""

BROKEN_FIGURES = """() => [...document.querySelectorAll(".figure b")].filter(node => {
    node.textContent = "118 ms";
    return node.getBoundingClientRect().height > 1.5 * parseFloat(getComputedStyle(node).fontSize);
}).length"""
"""The number of large figures in which a value such as ``118 ms`` takes two lines."""

PLACES = """() => [...document.querySelectorAll(".state-tile, .card")].map(node => {
    const { x, y } = node.getBoundingClientRect();
    return [Math.round(x), Math.round(y)];
})"""
"""The positions of the tiles and cards."""

NAMELESS = """() => [...document.querySelectorAll("button, a, input, select")]
    .filter(node => !node.getAttribute("aria-label") && !node.textContent.trim() && !node.labels?.length && !node.title)
    .map(node => node.outerHTML)"""
"""The controls that a screen reader could not name."""

BRIGHTNESS = """() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g)
    .map(Number).reduce((sum, part) => sum + part) / 3"""
"""The brightness of the background, from 0 to 255."""

NO_POLLING = """(() => {
    const original = window.setTimeout;
    window.pollsPrevented = 0;
    window.setTimeout = (act, delay, ...rest) => {
        if (delay < 4000) return original(act, delay, ...rest);
        window.pollsPrevented += 1;
        return 0;
    };
})()"""
"""Run before the page: timers of four seconds or more never fire, so every change was caused by an event."""

CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const colour = text => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, below) => [0, 1, 2].map(i => (top[i] * top[3] + below[i] * (255 - top[3])) / 255);
    const ground = node => {
        const chain = [];
        for (let one = node; one; one = one.parentElement) chain.unshift(colour(getComputedStyle(one).backgroundColor));
        return chain.reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const linear = part => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const poor = [];
    for (const node of document.querySelectorAll("body *")) {
        const says = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
        if (!says || !node.checkVisibility() || node.closest("svg, noscript, [disabled]")) continue;
        const behind = ground(node);
        const [one, other] = [light(over(colour(getComputedStyle(node).color), behind)), light(behind)];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} .${node.className}: ${node.textContent.slice(0, 40)}`);
    }
    return poor;
}"""
"""The texts whose contrast is below AA, with their ratio."""
