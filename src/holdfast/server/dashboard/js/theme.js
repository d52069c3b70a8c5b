// Runs before the first paint, so that the page never flashes in the other theme.
(() => {
  try {
    const chosen = localStorage.getItem("holdfast.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.classList.add(chosen);
  } catch {
    // Storage is blocked: the system's theme is used.
  }
})();
