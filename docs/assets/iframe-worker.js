// Browsers give no worker to a page that was opened as a file. The search of such a page runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((loaded, failed) => Object.assign(script, { onload: loaded, onerror: failed }));
      this.loaded.catch((fault) => this.onerror?.(fault));
      script.src = new URL(url, location);
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.onmessage({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
