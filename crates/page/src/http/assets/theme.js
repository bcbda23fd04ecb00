// Before the first paint, so that the page does not change its color.
document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";
