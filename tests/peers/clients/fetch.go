// Asks each URL with net/http: fetch URL... Prints a line for each: the status, or the error.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	for _, url := range os.Args[1:] {
		response, err := http.Get(url)
		if err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		response.Body.Close()
		fmt.Println(response.StatusCode)
	}
}
